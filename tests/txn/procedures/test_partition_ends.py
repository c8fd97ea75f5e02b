"""What a transaction announces: what is written must be found, what will probably be written need not."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import pytest
import trio
import trio.testing

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.procedures import partition_ends
from kproxy.txn.procedures.partition_ends import PartitionEnds
from kproxy.txn.txn_error import TxnError
from kproxy.txn.writes import PartitionWrites
from tests.net.txn.instances import Client, stage
from tests.txn.procedures.memory_log import TRIO_TIME

A, B, C, GONE, LEADERLESS = ("a", 0), ("b", 0), ("c", 0), ("gone", 0), ("leaderless", 0)


@dataclass
class Leaders:
    """Partitions end at 5; some do not exist, and some have no leader."""

    asked: list[set[TopicPartition]] = field(default_factory=list)

    async def __call__(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.asked.append(set(places))
        if LEADERLESS in places:
            await trio.sleep(60)
            raise OSError("no leader")
        if GONE in places:
            raise TxnError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "ListOffsets")
        return dict.fromkeys(places, 5)


@dataclass
class Topics:
    """Some topics may not be written; of others that is not known yet."""

    forbidden: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    #: Of topics, where they are known.
    ids: Mapping[str, bytes] = field(default_factory=dict)

    async def errors(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, ErrorCode]:
        return {place: ErrorCode.POLICY_VIOLATION for place in places if place[0] in self.forbidden}

    def topic_id(self, topic: str) -> bytes | None:
        return self.ids.get(topic)

    def is_known_writable(self, place: TopicPartition) -> bool:
        return place[0] not in (*self.forbidden, *self.unknown)


def ends_of(
    leaders: Leaders, topics: Topics | None = None, ids: Mapping[str, bytes] = MappingProxyType({})
) -> PartitionEnds:
    """``ids``: of topics, where they are known."""
    return PartitionEnds(leaders, replace(topics or Topics(), ids=ids), TRIO_TIME)


class TestPartitionEnds:
    async def test_all_that_was_added_is_asked_for_at_once(self) -> None:
        leaders = Leaders()
        ends = ends_of(leaders)
        assert await ends.with_likely([A], [A, B], []) == {A: 5, B: 5}
        assert leaders.asked == [{A, B}]

    async def test_the_usual_partitions_are_announced_without_a_question(self) -> None:
        leaders = Leaders()
        ends = ends_of(leaders)
        ends.note({B: PartitionWrites(9, ())}, [[C]])
        assert await ends.with_likely([A], [], []) == {A: 5, B: 9}
        assert leaders.asked == [{A}]

    async def test_those_of_the_last_transaction_are_announced_unless_they_are(self) -> None:
        ends = ends_of(Leaders())
        ends.note({B: PartitionWrites(9, ())}, [[C]])
        await ends.of([C])
        assert await ends.with_likely([A], [], [B]) == {A: 5, C: 5}
        ends.note({A: PartitionWrites(6, ())})
        assert await ends.with_likely([B], [], []) == {A: 6, B: 9}

    async def test_an_added_partition_that_does_not_exist_is_left_out(self) -> None:
        ends = ends_of(Leaders())
        ends.note({}, [[GONE]])
        assert await ends.with_likely([A], [GONE, B], []) == {A: 5}

    async def test_an_added_partition_without_a_leader_delays_the_written_ones_for_a_moment_only(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        ends = ends_of(Leaders())
        began = trio.current_time()
        assert await ends.with_likely([A], [LEADERLESS], []) == {A: 5}
        assert trio.current_time() - began <= partition_ends._AHEAD_SECONDS

    async def test_a_written_partition_that_does_not_exist_fails_the_request(self) -> None:
        with pytest.raises(TxnError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await ends_of(Leaders()).with_likely([A, GONE], [B], [])

    async def test_leaders_are_asked_once_for_what_is_written_alone(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        leaders = Leaders()
        with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
            await ends_of(leaders).with_likely([A, LEADERLESS], [A], [])
        assert leaders.asked == [{A, LEADERLESS}]

    @pytest.mark.parametrize("known", [True, False], ids=["end known", "end unknown"])
    async def test_a_written_partition_of_a_forbidden_topic_fails_the_request(self, known: bool) -> None:
        leaders = Leaders()
        ends = ends_of(leaders, Topics(forbidden=("b",)))
        if known:
            ends.note({B: PartitionWrites(9, ())})
        for asked in (ends.of([A, B]), ends.with_likely([A, B], [], [])):
            with pytest.raises(TxnError, match="POLICY_VIOLATION"):
                await asked
        assert leaders.asked == []

    @pytest.mark.parametrize("topics", [Topics(forbidden=("b",)), Topics(unknown=("b",))], ids=["no", "unknown"])
    async def test_a_likely_partition_that_may_not_be_written_is_left_out(self, topics: Topics) -> None:
        ends = ends_of(Leaders(), topics)
        ends.note({B: PartitionWrites(9, ())})
        assert await ends.with_likely([A], [B, C], []) == {A: 5, C: 5}

    async def test_more_partitions_than_are_remembered_are_asked_for_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(partition_ends, "_MOST_ENDS", 1)
        leaders = Leaders()
        assert await ends_of(leaders).with_likely([A], [B, C], []) == dict.fromkeys((A, B, C), 5)
        assert leaders.asked == [{A, B, C}]

    async def test_only_as_many_ends_are_remembered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(partition_ends, "_MOST_ENDS", 2)
        leaders = Leaders()
        ends = ends_of(leaders)
        for places in ([A], [B], [A, B], [B, C], [A]):
            assert await ends.of(places) == dict.fromkeys(places, 5)
        assert leaders.asked == [{A}, {B}, {B, C}, {A}]

    async def test_data_before_what_was_announced_show_that_a_topic_was_recreated(self) -> None:
        leaders = Leaders()
        ends = ends_of(leaders)
        assert ends.recreated({A: PartitionWrites(1, (), 0)}) is None, "of a partition that was not announced"
        await ends.of([A, B])
        assert ends.recreated({A: PartitionWrites(6, (), 5), B: PartitionWrites(6, (), 5)}) is None
        assert ends.recreated({A: PartitionWrites(6, (), 5), B: PartitionWrites(900, (), 4)}) == "b", (
            "however far it has grown since"
        )
        await ends.of([A, B])
        assert leaders.asked == [{A, B}, {B}], "what was announced of that topic is not known any more"

    async def test_a_topic_with_another_id_is_another_topic(self) -> None:
        leaders, ids = Leaders(), {"a": b"1", "b": b"1"}
        ends = ends_of(leaders, ids=ids)
        ends.note({A: PartitionWrites(900, (), 899), B: PartitionWrites(900, (), 899)})
        assert await ends.with_likely([A], [], []) == {A: 900, B: 900}
        ids["b"] = b"2"
        assert await ends.with_likely([A], [], []) == {A: 900}, "a likely partition is not asked for"
        assert await ends.of([A, B]) == {A: 900, B: 5}
        assert await ends.of([B]) == {B: 5}
        ids["a"] = b"2"
        assert await ends.with_likely([A], [], []) == {A: 5, B: 5}
        assert leaders.asked == [{B}, {A}]


@pytest.mark.parametrize("bumps", [False, True], ids=["TV1", "TV2"])
@pytest.mark.parametrize("anew", [False, True], ids=["same producer", "new producer"])
async def test_an_id_is_not_stuck_after_a_topic_that_it_wrote_was_deleted(anew: bool, bumps: bool) -> None:
    """The topic was recreated in between, so its end is not known any more."""
    async with stage() as cast:
        cast.fake.cluster.create_topic("gone", 1)
        a, client = await cast.instance(), Client("id", bumps)
        await client.init(a)
        await client.write(a, "1", GONE)
        await client.end(a)
        cast.fake.cluster.delete_topic("gone")
        cast.fake.cluster.create_topic("gone", 1)
        if not bumps:
            assert not await client.add(a, GONE)
        (refused,) = await client.send(a, [client.batch("2", GONE)])
        assert refused.error_code == ErrorCode.TRANSACTION_ABORTABLE
        await client.end(a, committed=False)
        cast.fake.cluster.delete_topic("gone")
        if anew:
            await client.init(a)
        else:
            await client.end(a, committed=False)
        await client.write(a, "3", ("t", 0))
        await client.end(a)
        assert cast.visible(a.transactions.views) == ["3"]
