"""Offsets of groups in kproxy's transactions, as consumers receive them, through another kproxy, in frames."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trio

from kproxy.codec._generated.list_offsets import ListOffsetsResponse
from kproxy.codec._generated.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kproxy.codec._generated.transaction_offsets import (
    TransactionOffsets,
    TransactionOffsetsPartition,
    TransactionOffsetsTopic,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn import group_offset_requests, offset_mirror
from kproxy.net.txn.group_offset_requests import GroupAsks
from kproxy.proxy.coordinator_requests import BeforeOffsetChange, BeforeOffsetFetch, UnstableOffsets
from kproxy.testing.fake_broker import Answer
from kproxy.testing.fake_broker.group_members import CommittedOffset
from kproxy.txn.ids import Producer
from tests.net.harness import proxied
from tests.net.txn.group_client import commit, fetch_request, fetched, told
from tests.net.txn.group_scene import scene
from tests.net.txn.test_rpcs_whole import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.idle_clock

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
LATER = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.fixture
def slow_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker does not get the offsets during the test."""
    monkeypatch.setattr(offset_mirror, "_LINGER_SECONDS", 1000.0)


@pytest.mark.usefixtures("slow_mirror")
class TestOffsetFetch:
    @pytest.mark.parametrize("version", range(10))
    async def test_it_is_right_at_once_after_the_commit_in_every_version(self, version: int) -> None:
        async with scene() as at:
            await at.move(5)
            assert at.broker_has() is None
            nothing = (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version == 0 else 0)
            assert await fetched(at.reader, "g", version, ("t", 0), ("t", 1)) == [(5, 0), nothing]
            await at.move(9, end=False)
            assert await fetched(at.reader, "g", version, ("t", 0)) == [(5, 0)]

    async def test_metadata_come_with_the_offset(self) -> None:
        async with scene() as at:
            await at.move(5)
            answer = await at.reader.call(fetch_request(["g"], [("t", 0)], 5), 5)
            assert answer.topics[0].partitions[0].metadata == "m"

    @pytest.mark.parametrize("version", [2, 7, 9])
    async def test_a_request_for_all_receives_those_that_only_the_log_has(self, version: int) -> None:
        async with scene() as at:
            assert await commit(at.reader, "g", 3, index=1) == 0
            await at.move(5)
            answer = await at.reader.call(fetch_request(["g"], None, version), version)
            assert told(answer, version, "g") == {("t", 0): (5, 0), ("t", 1): (3, 0)}

    async def test_several_groups_and_topics_by_their_ids(self) -> None:
        async with scene() as at:
            await at.move(5)
            await at.move(6, "h")
            topic_id = at.proxy.brokers.topics["t"].topic_id
            for places in (None, [("t", 0)]):
                request = fetch_request(["g", "h", "none"], places, 10, ids={"t": topic_id})
                answer = await at.reader.call(request, 10)
                assert told(answer, 10, "g") == {(topic_id.hex(), 0): (5, 0)}
                assert told(answer, 10, "h") == {(topic_id.hex(), 0): (6, 0)}
                assert told(answer, 10, "none") == ({} if places is None else {(topic_id.hex(), 0): (-1, 0)})

    async def test_what_is_open_is_unstable_and_the_last_offset_for_who_wants_that(self) -> None:
        async with scene() as at:
            await at.move(5)
            await at.move(9, end=None)
            for version in (7, 8, 9):
                assert await fetched(at.reader, "g", version, ("t", 0), ("t", 1)) == [(-1, UNSTABLE), (-1, 0)]
                assert await fetched(at.reader, "g", version, ("t", 0), stable=False) == [(5, 0)]
            assert await at.producer.end() == 0
            assert await fetched(at.reader, "g", 7, ("t", 0)) == [(9, 0)]

    async def test_nobody_waits_for_a_producer_that_has_ended(self) -> None:
        """kafkajs asks for offsets before it fences its killed self."""
        async with scene() as at, await at.proxy.client() as own:
            await at.move(5)
            await at.move(9, end=None)
            await at.producer.client.stream.aclose()
            assert await fetched(own, "g", 5, ("t", 0)) == [(5, 0)]

    async def test_a_client_without_a_word_for_it_waits_for_the_decision(self) -> None:
        async with scene() as at, trio.open_nursery() as nursery:
            await at.move(9, end=None)
            answers: list[list[tuple[int, int]]] = []

            async def ask() -> None:
                answers.append(await fetched(at.reader, "g", 5, ("t", 0)))

            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert not answers
            assert await at.producer.end() == 0
            nursery.cancel_scope.deadline = trio.current_time() + 5
            while not answers:  # noqa: ASYNC110 - the response is what is waited for
                await trio.sleep(0.01)
            assert answers == [[(9, 0)]]

    @pytest.mark.parametrize("version", [1, 2, 6])
    async def test_and_is_told_to_ask_again_if_that_takes_long(
        self, version: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(group_offset_requests, "_WAIT_SECONDS", 0.05)
        async with scene() as at:
            await at.move(9, end=None)
            answer = await at.reader.call(fetch_request(["g"], [("t", 0)], version), version)
            rows = told(answer, version, "g")
            assert rows[("t", 0)] == (-1, LATER)
            assert (("", -1) in rows) is (version >= 2)

    @pytest.mark.parametrize("version", [1, 7, 9])
    async def test_while_the_log_cant_be_read_nothing_is_returned(
        self, version: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with scene(delivery_timeout_ms=300, upstream_request_timeout_ms=100) as at:
            await at.move(5)
            at.proxy.brokers.control(ApiKey.LIST_OFFSETS, lambda _: Answer(ListOffsetsResponse()))
            answer = await at.reader.call(fetch_request(["g"], [("t", 0)], version), version)
            assert set(told(answer, version, "g").values()) == {(-1, LATER)}

    async def test_what_the_broker_refuses_stays_refused(self) -> None:
        async with scene(3) as at:
            await at.move(5)
            wrong = next(
                broker
                for broker in (1, 2, 3)
                if at.proxy.brokers.coordinator_of("g").node_id != broker  # type: ignore[union-attr]
            )
            async with await at.proxy.client(wrong) as client:
                answer = await client.call(fetch_request(["g"], [("t", 0)], 8), 8)
                assert told(answer, 8, "g") == {("", -1): (-1, ErrorCode.NOT_COORDINATOR)}


async def test_without_a_log_offsets_are_the_brokers() -> None:
    async with proxied(**OPTIONS) as proxy, await proxy.client() as client:
        proxy.brokers.create_topic("t")
        for version in range(9):
            assert await commit(client, "g", version, version) == 0
            assert await fetched(client, "g", version, ("t", 0)) == [(version, 0)]
        assert proxy.brokers.groups["g"].offsets["t", 0] == CommittedOffset(8, -1, "plain")


class Scripted:
    """A log with these topics' offsets of a group ``g``, and what it was asked."""

    def __init__(self, *topics: str, is_open: bool = False, has_log: bool = True) -> None:
        rows = [TransactionOffsetsTopic(name, [TransactionOffsetsPartition(0, 5, -1, None)]) for name in topics]
        record = TransactionOffsets(group_id="g", topics=rows)
        self._rows = [(SimpleNamespace(transactional_id="id"), Producer(1, 0), record)] if topics else []
        self._is_open = is_open
        self.views = self
        self.opened = trio.Event()
        if has_log:
            self.opened.set()
        self.asked: list[Any] = []
        self.metadata = self
        #: Done after the log was read to its end; how long that takes, and the brokers' own transactions.
        self.reads: Callable[[], None] = lambda: None
        self.read_s = self.stable_s = 0.0
        self.unsettled = False

    def undecided_offsets(self, group_id: str) -> Any:
        return self._rows if self._is_open and group_id == "g" else []

    def unmirrored_offsets(self, group_id: str) -> Any:
        return self._rows if not self._is_open and group_id == "g" else []

    async def ids(self, names: Any) -> Any:
        self.asked.append(list(names))
        return {"t": b"i" * 16}

    async def settle(self, group_id: str) -> None:
        self.asked.append(group_id)

    def is_unsettled(self, group_id: str) -> bool:
        return self.unsettled and group_id == "g"

    async def read_to_end(self) -> None:
        self.asked.append("read")
        await trio.sleep(self.read_s)
        self.reads()

    async def stable(self, requests: Any) -> None:
        self.asked.append(requests)
        await trio.sleep(self.stable_s)

    def asks(self, *, with_stable: bool = False) -> GroupAsks:
        fake: Any = self
        return GroupAsks(fake, fake, fake, fake, self.read_to_end, fake, self.stable if with_stable else None)


def _fail() -> None:
    raise OSError("no broker")


def _said(answer: OffsetFetchResponse) -> list[Any]:
    return [
        (topic.name, topic.topic_id, row.committed_offset, row.metadata, row.error_code)
        for group in answer.groups
        for topic in group.topics
        for row in topic.partitions
    ]


class TestBeforeFetch:
    async def test_a_client_that_has_a_word_for_it_waits_for_no_decision(self) -> None:
        log, began = Scripted("t", is_open=True), trio.current_time()
        answer = await log.asks().before_fetch(BeforeOffsetFetch(["g"], UnstableOffsets.TELL, by_id=False))
        assert _said(answer) == [("t", bytes(16), -1, "", UNSTABLE)]
        assert trio.current_time() == began

    async def test_topics_have_ids_where_they_are_asked_for_and_deleted_topics_are_left_out(self) -> None:
        log = Scripted("t", "deleted")
        named = await log.asks().before_fetch(BeforeOffsetFetch(["g"], UnstableOffsets.LAST, by_id=False))
        assert _said(named) == [("t", bytes(16), 5, "", 0), ("deleted", bytes(16), 5, "", 0)]
        assert log.asked == ["read"]
        by_id = await log.asks().before_fetch(BeforeOffsetFetch(["g"], UnstableOffsets.LAST, by_id=True))
        assert _said(by_id) == [("t", b"i" * 16, 5, "", 0)]

    async def test_no_broker_is_asked_for_the_ids_of_no_topics(self) -> None:
        log = Scripted()
        await log.asks().before_fetch(BeforeOffsetFetch(["g"], UnstableOffsets.LAST, by_id=True))
        assert log.asked == ["read"]

    async def test_transactions_of_the_brokers_are_waited_for_only_so_long(self) -> None:
        log, requests = Scripted("t"), [OffsetFetchRequest("g")]
        ask = BeforeOffsetFetch(["g"], UnstableOffsets.LAST, by_id=False, stable=requests)
        assert _said(await log.asks(with_stable=True).before_fetch(ask)) == [("t", bytes(16), 5, "", 0)]
        assert log.asked == ["read", requests]
        log.stable_s = 1000
        assert (await log.asks(with_stable=True).before_fetch(ask)).error_code == LATER


class TestBeforeCommit:
    async def test_what_was_committed_before_is_settled(self) -> None:
        log = Scripted()
        asks = log.asks()
        for _ in range(2):
            assert (await asks.before_change(BeforeOffsetChange(["g"]))).error_code == 0
        assert log.asked == ["read", "g", "read", "g"]

    async def test_a_log_that_is_not_there_is_read_again_only_after_a_while(self) -> None:
        log = Scripted(has_log=False)
        asks = log.asks()
        for _ in range(3):
            assert (await asks.before_change(BeforeOffsetChange(["g"]))).error_code == 0
        assert log.asked == ["read"]
        await trio.sleep(0.1)
        await asks.before_change(BeforeOffsetChange(["g"]))
        assert log.asked == ["read", "read"]
        log.opened.set()
        await asks.before_change(BeforeOffsetChange(["g"]))
        assert log.asked == ["read", "read", "read", "g"]

    @pytest.mark.parametrize("is_slow", [False, True])
    @pytest.mark.parametrize(
        ("is_open", "unsettled", "error"), [(False, False, 0), (True, False, LATER), (False, True, LATER)]
    )
    async def test_while_the_log_can_not_be_read_only_groups_without_transactions_commit(
        self, *, is_open: bool, unsettled: bool, error: int, is_slow: bool
    ) -> None:
        log = Scripted("t", is_open=is_open)
        log.unsettled = unsettled
        if is_slow:
            log.read_s = 1000
        else:
            log.reads = _fail
        assert (await log.asks().before_change(BeforeOffsetChange(["g"]))).error_code == error
        assert log.asked == ["read"]
