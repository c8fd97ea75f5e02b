import functools
import inspect
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from kproxy.client import ControlClient, ControlError, ControlUnreachable, OwnerId
from kproxy.codec.messages import ErrorCode
from kproxy.config import Address, Config
from kproxy.control.listeners import serve_control
from kproxy.control.schemas import DEFAULT_TIMEOUT_MS
from kproxy.txn.txn_error import TxnError
from tests.control.fake_transactions import FakeTransactions

TOKEN = "correct-horse-battery"
NOT_NOW = TxnError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")


async def with_control(tmp_path: Path, control: FakeTransactions, work: Callable[[ControlClient], None]) -> None:
    """Runs a blocking piece of work against the real server on a socket."""
    path = tmp_path / "c.sock"
    config = Config(bootstrap_servers=(Address("kafka", 9092),), control_socket=path)
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_control, config, control)
            await trio.to_thread.run_sync(work, ControlClient(path, timeout=60))
            nursery.cancel_scope.cancel()


async def test_every_method(tmp_path: Path) -> None:
    control = FakeTransactions()

    def work(client: ControlClient) -> None:
        begun = client.begin(client_id="loader")
        assert begun.transactional_id == "kproxy-loader"
        control.write("kproxy-loader", "orders", 3)
        assert client.describe("kproxy-loader").partitions == (("orders", 3),)
        [part] = client.prepare("kproxy-loader", owner=begun.owner).parts
        assert part.prepared
        last = client.commit("kproxy-loader", batch_id="7").last
        assert last is not None
        assert last.committed
        other = client.begin(transactional_id="a/ü", timeout_ms=5)
        assert other.client_id == ""
        assert client.abort("a/ü", owner=other.owner).state == "CompleteAbort"
        assert [row.transactional_id for row in client.list()] == ["kproxy-loader", "a/ü"]
        assert [row.state for row in client.list(["CompleteAbort", "Empty"])] == ["CompleteAbort"]

    await with_control(tmp_path, control, work)
    assert control.calls[0] == ("begin", "loader", None, 60_000)
    assert ("commit", "kproxy-loader", "7", (), None, False) in control.calls


async def test_a_group_of_producers(tmp_path: Path) -> None:
    control = FakeTransactions()

    def work(client: ControlClient) -> None:
        owner = client.initialize("t/ü", client_id="driver", timeout_ms=5).owner
        assert owner == OwnerId(1000, 0)
        for member in ("m/1", "n"):
            client.begin_member("t/ü", member, client_id=member, owner=owner)
        assert client.abort_member("t/ü", "n").parts[0].name == "m/1"
        assert client.prepare_member("t/ü", "m/1").parts[0].prepared
        client.commit("t/ü", batch_id="7", members=["m/1"], owner=owner, abort_others=True)
        with pytest.raises(ControlError, match="PRODUCER_FENCED"):
            client.abort("t/ü", owner=OwnerId(1000, 9), abort_others=True)

    await with_control(tmp_path, control, work)
    assert control.calls[-2:] == [
        ("commit", "t/ü", "7", ("m/1",), OwnerId(1000, 0), True),
        ("abort", "t/ü", (), OwnerId(1000, 9), True),
    ]
    assert ("begin_member", "t/ü", "m/1", "m/1", OwnerId(1000, 0), None, False) in control.calls


async def test_over_tcp_with_the_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n", encoding="utf-8")
    config = Config(
        bootstrap_servers=(Address("kafka", 9092),), control_http=Address("127.0.0.1", 0), control_token_file=path
    )

    def work(address: Address) -> None:
        url = f"http://{address}"
        assert ControlClient(url=url, token_file=path, timeout=60).list() == []
        with pytest.raises(ControlError, match="Send the token") as caught:
            ControlClient(url=url, timeout=60).list()
        assert (caught.value.status, caught.value.error) == (401, "CLUSTER_AUTHORIZATION_FAILED")

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            address = await nursery.start(serve_control, config, FakeTransactions())
            await trio.to_thread.run_sync(work, address)
            nursery.cancel_scope.cancel()


async def test_a_commit_names_what_it_decides(tmp_path: Path) -> None:
    """One that names nothing, and comes late, would decide the next transaction."""
    control = FakeTransactions()

    def work(client: ControlClient) -> None:
        with pytest.raises(ValueError, match="give owner, as begin returned it, or batch_id"):
            client.commit("t", members=["m"])
        with client.transaction("t", client_id="loader"):
            pass

    await with_control(tmp_path, control, work)
    (commit,) = (call for call in control.calls if call[0] == "commit")
    assert commit[4] == control.ids["t"].owner


async def test_a_block_commits_at_its_end(tmp_path: Path) -> None:
    control = FakeTransactions()

    def work(client: ControlClient) -> None:
        with client.transaction("orders-loader", client_id="loader", timeout_ms=5) as txn:
            assert txn.transactional_id == "orders-loader"
            assert txn.describe().state == "Ongoing"

    await with_control(tmp_path, control, work)
    assert [call[0] for call in control.calls] == ["begin", "describe", "commit"]
    assert control.ids["orders-loader"].state == "CompleteCommit"


async def test_an_exception_aborts_and_propagates(tmp_path: Path) -> None:
    control = FakeTransactions()

    def work(client: ControlClient) -> None:
        with pytest.raises(ZeroDivisionError), client.transaction(client_id="loader"):
            raise ZeroDivisionError

    await with_control(tmp_path, control, work)
    assert control.ids["kproxy-loader"].state == "CompleteAbort"


async def test_an_abort_that_fails_does_not_hide_the_exception(tmp_path: Path) -> None:
    control = FakeTransactions()

    def work(client: ControlClient) -> None:
        with pytest.raises(ZeroDivisionError) as caught, client.transaction(client_id="loader"):
            control.failures.append(NOT_NOW)
            raise ZeroDivisionError
        assert "its time-out will" in caught.value.__notes__[0]

    await with_control(tmp_path, control, work)


@pytest.mark.parametrize("decide", ["commit", "abort", "prepare"])
async def test_what_was_decided_in_the_block_is_not_decided_again(tmp_path: Path, decide: str) -> None:
    control = FakeTransactions()

    def work(client: ControlClient) -> None:
        with client.transaction(client_id="loader") as txn:
            getattr(txn, decide)()

    await with_control(tmp_path, control, work)
    assert [call[0] for call in control.calls] == ["begin", decide]


async def test_a_commit_is_asked_for_again_with_the_same_batch_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = FakeTransactions()
    pauses: list[float] = []
    monkeypatch.setattr("kproxy.client.time", SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic))

    def work(client: ControlClient) -> None:
        with client.transaction(client_id="loader"):
            control.failures += [NOT_NOW, NOT_NOW]

    await with_control(tmp_path, control, work)
    commits = [call for call in control.calls if call[0] == "commit"]
    assert len(commits) == 3
    assert len(set(commits)) == 1
    assert pauses == [0.1, 0.2]


async def test_what_is_refused_for_good_is_not_asked_again(tmp_path: Path) -> None:
    control = FakeTransactions()

    def work(client: ControlClient) -> None:
        with pytest.raises(ControlError) as caught, client.transaction(client_id="loader"):
            control.failures.append(TxnError(ErrorCode.TRANSACTION_ABORTABLE, "the time is over"))
        assert (caught.value.error, caught.value.retriable) == ("TRANSACTION_ABORTABLE", False)

    await with_control(tmp_path, control, work)


async def test_a_block_begins_when_the_brokers_are_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control = FakeTransactions(failures=[NOT_NOW, NOT_NOW])
    pauses: list[float] = []
    monkeypatch.setattr("kproxy.client.time", SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic))

    def work(client: ControlClient) -> None:
        with client.transaction(client_id="loader"):
            pass

    await with_control(tmp_path, control, work)
    assert [call[0] for call in control.calls] == ["begin", "begin", "begin", "commit"]
    assert pauses == [0.1, 0.2]


async def test_a_block_that_cannot_begin_is_not_entered(tmp_path: Path) -> None:
    def work(client: ControlClient) -> None:
        client.begin(client_id="loader")
        with pytest.raises(ControlError, match="CONCURRENT_TRANSACTIONS"), client.transaction(client_id="loader"):
            raise AssertionError

    await with_control(tmp_path, FakeTransactions(), work)


# -- who does not answer, or is somebody else


@contextmanager
def answering(path: Path, answers: list[bytes]) -> Iterator[None]:
    """A server that gives each connection the next response, whatever is asked."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            length = 0
            while line := self.rfile.readline().strip():
                name, _, value = line.lower().partition(b":")
                length = int(value) if name == b"content-length" else length
            self.rfile.read(length)
            self.wfile.write(answers.pop(0))

    with socketserver.UnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=functools.partial(server.serve_forever, 0.01))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def http_answer(status: int, body: Any) -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(raw), raw)


@pytest.mark.parametrize(
    "answer",
    [
        http_answer(200, b"hello"),
        http_answer(200, {}),
        http_answer(200, [1]),
        http_answer(200, {"transactions": [{}]}),
        http_answer(200, b"\xff"),
        http_answer(500, {"message": "x"}),
        http_answer(404, b"<html>"),
        http_answer(200, b'{"transactions": []}')[:-1],
    ],
)
def test_a_stranger_is_told_from_kproxy(tmp_path: Path, answer: bytes) -> None:
    path = tmp_path / "c.sock"
    with (
        answering(path, [answer]),
        pytest.raises(ControlUnreachable, match=r"not kproxy's control API; give --socket, or --url of control\.http"),
    ):
        ControlClient(path, timeout=60).list()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 2", b"\x00\x00\r\n\r\n"])
def test_a_broken_answer_is_none(tmp_path: Path, answer: bytes) -> None:
    path = tmp_path / "c.sock"
    with answering(path, [answer]), pytest.raises(ControlUnreachable, match="no answer from kproxy at "):
        ControlClient(path, timeout=60).list()


def test_fields_of_a_newer_kproxy_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    row = dict.fromkeys(("transactional_id", "state", "client_id", "instance_id", "novelty"), "x")
    row |= dict.fromkeys(("producer_id", "producer_epoch", "started_ms", "undecided_parts"), 1)  # type: ignore[arg-type]
    with answering(path, [http_answer(200, {"transactions": [row], "more": 1})]):
        [found] = ControlClient(path, timeout=60).list()
    assert (found.state, found.producer_id) == ("x", 1)


def test_where_nothing_is(tmp_path: Path) -> None:
    with pytest.raises(ControlUnreachable, match=r"no such socket; is it running with control\.socket"):
        ControlClient(tmp_path / "none").list()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead"))
    with pytest.raises(ControlUnreachable, match="nothing listens there"):
        ControlClient(tmp_path / "dead").list()


def test_an_answer_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "c.sock"))
        silent.listen()
        with pytest.raises(ControlUnreachable, match="it took too long; whether it was done is open"):
            ControlClient(tmp_path / "c.sock", timeout=0.05).list()


@pytest.mark.parametrize("url", ["", "localhost:1", "ftp://localhost:1", "http://", "http://localhost:1/v1"])
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match="must be http://HOST:PORT"):
        ControlClient(url=url)


def test_the_default_time_out_is_the_apis() -> None:
    assert inspect.signature(ControlClient.begin).parameters["timeout_ms"].default == DEFAULT_TIMEOUT_MS
