from pathlib import Path

import pytest
import trio

from kproxy.dedup.retry_rules import is_among
from kproxy.testing.fake_broker import open_fake_cluster
from kproxy.testing.ports import free_ports
from tests.support.patience import PATIENCE_S
from verification.chaos.kproxy_process import SHORT_TIMES, KproxyFailed, KproxyProcess
from verification.chaos.workload import released_for


def without_brokers(directory: Path, name: str = "k") -> KproxyProcess:
    """One that never becomes ready."""
    return KproxyProcess(name, f"127.0.0.1:{free_ports(1)[0]}", directory)


async def test_who_waits_for_a_start_is_let_go_when_the_next_fault_comes(tmp_path: Path) -> None:
    kproxy = without_brokers(tmp_path)
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kproxy.start)
            await trio.testing.wait_all_tasks_blocked()
            kproxy.kill()
    assert kproxy.ended()


async def test_one_that_ends_by_itself_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(KproxyFailed, match="ended with 2"), trio.fail_after(PATIENCE_S):
        await without_brokers(tmp_path, name="no such name!").start()


async def test_a_successor_takes_its_place(tmp_path: Path) -> None:
    async with open_fake_cluster(1) as fake:
        kproxy = KproxyProcess("k", fake.bootstrap, tmp_path, {"handover-socket": str(tmp_path / "handover")})
        try:
            with trio.fail_after(PATIENCE_S):
                await kproxy.start()
                await kproxy.hand_over()
            assert (kproxy.starts, kproxy.ended()) == (2, False)
            assert kproxy.metrics()["kproxy_ready"] == 1
        finally:
            kproxy.kill()
        assert "the former kproxy has ended" in kproxy.log_tail()


async def test_one_that_is_killed_while_it_answers_has_no_metrics(tmp_path: Path) -> None:
    kproxy = without_brokers(tmp_path)

    async def answer_in_part(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nkproxy_")

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_tcp, answer_in_part, kproxy.http)
        assert await trio.to_thread.run_sync(kproxy.metrics) == {}
        nursery.cancel_scope.cancel()


async def test_the_most_that_it_kept_for_retries_counts_from_its_start(tmp_path: Path) -> None:
    kproxy = without_brokers(tmp_path)
    sizes = iter((5, 30, 7))

    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            page = f"kproxy_retry_memory_bytes {next(sizes)}.0\n".encode()
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(page) + page)

    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_tcp, answer, kproxy.http)
        for _ in range(3):
            await trio.to_thread.run_sync(kproxy.metrics)
        nursery.cancel_scope.cancel()
    assert kproxy.most_for_retries == 30
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kproxy.start)
            await trio.testing.wait_all_tasks_blocked()
            kproxy.kill()
    assert kproxy.most_for_retries == 0


@pytest.mark.parametrize("deep", [False, True])
def test_clients_that_renew_timestamps_are_declared(deep: bool) -> None:
    renewing = [str(client.job["name"]) for client in released_for("kproxy-1", deep=deep) if client.driver == "sarama"]
    assert renewing
    assert all(is_among(name, [SHORT_TIMES["clients-new-timestamps"]]) for name in renewing)
