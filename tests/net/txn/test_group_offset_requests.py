"""Offsets of groups in kproxy's transactions, as consumers receive them, through another kproxy, in frames."""

import pytest
import trio

from kproxy.codec._generated.list_offsets import ListOffsetsResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn import group_offset_requests, offset_mirror
from kproxy.testing.fake_broker import Answer
from kproxy.testing.fake_broker.group_members import CommittedOffset
from tests.net.harness import proxied
from tests.net.txn.group_client import commit, fetch_request, fetched, told
from tests.net.txn.group_scene import scene
from tests.net.txn.test_rpcs_whole import OPTIONS

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
