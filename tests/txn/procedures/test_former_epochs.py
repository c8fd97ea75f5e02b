"""What former epochs of a transaction wrote: fenced, read back, and told only where nothing is missing or doubtful."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kproxy.codec._generated.fetch import FetchResponse, FetchResponsePartitionData
from kproxy.codec._generated.list_offsets import ListOffsetsResponse
from kproxy.codec._generated.write_txn_markers import WriteTxnMarkersResponse
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.leaders import Leaders, LogError, Told
from kproxy.net.txn.former_data import FormerData
from kproxy.proxy.retry_stats import RetryStats
from kproxy.txn.ids import LAST_EPOCH, TXN_BITS, Producer
from kproxy.txn.procedures.former import Former, Uncertain
from kproxy.txn.procedures.former_epochs import FormerEpochs
from kproxy.txn.view import IdView
from kproxy.txn.writes import PartitionWrites
from tests.codec.message_sets import entry
from tests.net.txn.log_harness import configured
from tests.txn.procedures.memory_log import TRIO_TIME

P0, P1 = ("t", 0), ("t", 1)
PID = TXN_BITS | 7
#: Former epochs, the first first; the last one has another producer id.
ONE, TWO, OTHER = Producer(PID, 3), Producer(PID, 64), Producer(TXN_BITS | 8, 0)


class FakeLeaders:
    """Partitions that one leader has: markers are written to them, and each Fetch has one batch."""

    values = Leaders.values

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, list[tuple[int, bytes]]] = {P0: [], P1: []}
        self.ends = dict.fromkeys(self.logs, 0)
        self.markers: dict[TopicPartition, list[tuple[int, int]]] = {}
        self.is_fenced = False
        #: By partition: the error of WriteTxnMarkers; what is lost of its log's end, and of its beginning.
        self.errors: dict[TopicPartition, int] = {}
        self.unreadable: dict[TopicPartition, int] = {}
        self.starts = dict.fromkeys(self.logs, 0)
        self.size = 0
        #: Whether each Fetch begins with the batch before.
        self.repeats = False

    def put(self, place: TopicPartition, data: bytes, records: int) -> None:
        self.logs[place].append((self.ends[place], data))
        self.ends[place] += records
        self.size += len(data)

    def write(
        self,
        producer: Producer,
        place: TopicPartition,
        sequence: int,
        offsets: Sequence[int] = (0,),
        *,
        is_control: bool = False,
    ) -> None:
        """A batch of records with these offsets in it."""
        rows = [Record(offset, 0, b"\0\0\0\0" if is_control else None, b"-") for offset in offsets]
        kind = {"is_control": is_control, "is_transactional": is_control}
        data = build_batch(
            rows,
            base_offset=self.ends[place],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            **kind,
        )
        self.put(place, bytes(data), offsets[-1] + 1)

    async def ask(self, places: Any, question: Any) -> Mapping[TopicPartition, Told[Any]]:
        if question.answer is FetchResponse:
            return {place: self._fetched(place, wish[0]) for place, wish in places.items()}
        if question.answer is ListOffsetsResponse:
            asked = question.request(places)
            is_end = bool(places) and all(topic.partitions[0].timestamp == -1 for topic in asked.topics)
            knows = not is_end or asked.replica_id == -2 or min(question.versions) == 5
            assert knows, "older ones answer though they do not know it yet"
            return {place: Told(0, (self.ends if is_end else self.starts)[place]) for place in places}
        assert question.answer is WriteTxnMarkersResponse
        for place in places:
            rows = [(row.producer_id, row.producer_epoch) for row in question.request([place]).markers]
            self.markers.setdefault(place, []).extend(rows)
            for row in rows if not self.is_fenced else ():
                self.write(Producer(*row), place, -1, is_control=True)
        return {place: Told(self.errors.get(place, 0), not self.is_fenced) for place in places}

    def _fetched(self, place: TopicPartition, offset: int) -> Told[Any]:
        if offset < self.starts[place]:
            return Told(ErrorCode.OFFSET_OUT_OF_RANGE, FetchResponsePartitionData())
        rows = self.logs[place] + [(self.ends[place], b"")]
        following = [rows[at][1] for at in range(len(rows) - 1) if rows[at + 1][0] > offset]
        if offset >= self.unreadable.get(place, 1 << 40):
            following = []
        before = [rows[at][1] for at in range(len(rows) - 1) if rows[at + 1][0] == offset] if self.repeats else []
        return Told(0, FetchResponsePartitionData(records=b"".join(before + following[:1])))


def view_of(sequences: Mapping[Producer, Mapping[TopicPartition, int]], start: int = 0) -> IdView:
    """What the log says: the partitions of each epoch, from an offset on, with the client's first sequences."""
    view = IdView("id")
    view.bounds = {part: dict.fromkeys(places, start) for part, places in sequences.items()}
    view.first_sequences = {part: dict(places) for part, places in sequences.items()}
    return view


def epochs(leaders: Any, stats: RetryStats | None = None) -> FormerEpochs:
    return FormerEpochs(FormerData(leaders, configured("h:1"), stats or RetryStats()), TRIO_TIME)


async def read(leaders: FakeLeaders, view: IdView, *parts: Producer) -> Former:
    return await epochs(leaders).read(view, parts)


async def refused(leaders: FakeLeaders, view: IdView, *parts: Producer) -> str:
    with pytest.raises(Uncertain) as caught:
        await read(leaders, view, *parts)
    return str(caught.value)


async def test_what_an_epoch_wrote_is_read_by_the_clients_sequences() -> None:
    leaders, stats = FakeLeaders(), RetryStats()
    leaders.put(P0, entry(0, None, b"old"), 1)
    leaders.write(ONE, P0, 0, (0, 1))
    leaders.write(Producer(1, 0), P0, 0, (0, 1, 2))
    leaders.write(ONE._replace(epoch=2), P0, 5)
    leaders.write(ONE._replace(epoch=3), P0, 2)
    found = await epochs(leaders, stats).read(view_of({ONE: {P0: 10}}), [ONE])
    assert found.written == {ONE: {P0: PartitionWrites(8, ())}}
    assert found.following == {P0: 13}
    assert found.sent == {P0: [(10, 2, 1), (12, 1, 7)]}
    assert leaders.markers == {P0: [(PID, 4)]}
    assert stats.readback_bytes == leaders.size


async def test_it_is_read_from_where_it_began() -> None:
    leaders = FakeLeaders()
    leaders.write(ONE, P0, 9)
    leaders.write(ONE, P0, 0)
    found = await read(leaders, view_of({ONE: {P0: 0}}, start=1), ONE)
    assert found.sent == {P0: [(0, 1, 1)]}


async def test_what_was_read_before_is_not_read_again() -> None:
    leaders = FakeLeaders()
    leaders.repeats = True
    for sequence in range(3):
        leaders.write(ONE, P0, sequence)
    found = await read(leaders, view_of({ONE: {P0: 0}}), ONE)
    assert found.sent == {P0: [(0, 1, 0), (1, 1, 1), (2, 1, 2)]}


async def test_sequences_begin_again_at_0_after_the_highest_one() -> None:
    leaders = FakeLeaders()
    leaders.write(ONE, P0, 0, (0, 1))
    leaders.write(ONE, P0, 2)
    found = await read(leaders, view_of({ONE: {P0: (1 << 31) - 1}}), ONE)
    assert (found.following, found.sent) == ({P0: 2}, {P0: [((1 << 31) - 1, 2, 0), (1, 1, 2)]})


async def test_several_epochs_are_one_transaction() -> None:
    leaders = FakeLeaders()
    leaders.write(TWO, P0, 0, (0, 1))
    leaders.write(ONE, P1, 0, (0, 1))
    leaders.write(TWO, P1, 0)
    leaders.write(OTHER, P1, 0)
    view = view_of({TWO: {P0: 7, P1: 2}, ONE: {P1: 0}, OTHER: {P1: 3}})
    found = await read(leaders, view, ONE, TWO, OTHER)
    assert list(found.written) == [ONE, TWO, OTHER]
    assert found.written[TWO] == {P0: PartitionWrites(2, ()), P1: PartitionWrites(3, ())}
    assert found.following == {P0: 9, P1: 4}
    assert found.sent == {P0: [(7, 2, 0)], P1: [(0, 2, 0), (2, 1, 2), (3, 1, 3)]}
    fences = [(PID, 65), (TXN_BITS | 8, 1)]
    assert {place: sorted(rows) for place, rows in leaders.markers.items()} == {P0: fences, P1: fences}


async def test_the_highest_epoch_of_a_producer_id_is_fenced_whatever_the_order() -> None:
    leaders = FakeLeaders()
    await read(leaders, view_of({TWO: {P0: 0}, ONE: {P0: 0}}), TWO, ONE)
    assert leaders.markers == {P0: [(PID, 65)]}


async def test_an_epoch_that_wrote_nothing_says_where_the_client_begins() -> None:
    leaders = FakeLeaders()
    leaders.write(ONE, P1, 0)
    view = view_of({ONE: {P0: 5, P1: 0}, TWO: {P0: 7, P1: 9}})
    found = await read(leaders, view, ONE, TWO)
    assert found.following == {P0: 7, P1: 1}
    assert found.written == {ONE: {P1: PartitionWrites(1, ())}}
    leaders = FakeLeaders()
    leaders.write(TWO, P0, 0)
    found = await read(leaders, view_of({ONE: {P0: 5}, TWO: {P0: 7}}), ONE, TWO)
    assert (found.following, found.sent) == ({P0: 8}, {P0: [(7, 1, 0)]})


async def test_what_is_not_there_is_nothing() -> None:
    found = await read(FakeLeaders(), view_of({}), ONE)
    assert found == Former({}, {}, {})


class TestUncertain:
    @pytest.mark.parametrize("first", [0, 2])
    async def test_where_the_client_left_out_sequences(self, first: int) -> None:
        leaders = FakeLeaders()
        leaders.write(ONE, P0, 0)
        leaders.write(TWO, P0, 0)
        view = view_of({ONE: {P0: 0}, TWO: {P0: first}})
        assert await refused(leaders, view, ONE, TWO) == "the client left out sequences on t-0"

    @pytest.mark.parametrize(
        ("sequence", "offsets"), [(0, (0,)), (1, (0,)), (3, (0,)), (2, (0, 2))], ids=["copy", "overlap", "gap", "cut"]
    )
    async def test_where_batches_are_not_those_that_were_sent(self, sequence: int, offsets: Sequence[int]) -> None:
        leaders = FakeLeaders()
        leaders.write(ONE, P0, 0, (0, 1))
        leaders.write(ONE, P0, sequence, offsets)
        assert await refused(leaders, view_of({ONE: {P0: 0}}), ONE) == "t-0 has copies of batches, or gaps"

    async def test_where_the_log_does_not_say_where_the_client_began(self) -> None:
        view, why = view_of({ONE: {P0: 0}}), "the log does not say where the client began on t-0"
        view.first_sequences = {}
        assert await refused(FakeLeaders(), view, ONE) == why
        view = view_of({TWO: {P0: 0}})
        leaders = FakeLeaders()
        leaders.write(ONE, P0, 0)
        assert await refused(leaders, view, ONE, TWO) == why
        assert (await read(FakeLeaders(), view, TWO, ONE)).following == {P0: 0}

    async def test_where_another_instance_was_faster(self) -> None:
        leaders = FakeLeaders()
        leaders.is_fenced = True
        why = await refused(leaders, view_of({ONE: {P0: 0}}), ONE)
        assert why == "another instance has fenced the transaction on t-0"

    @pytest.mark.parametrize("epoch", [3, 5])
    async def test_where_the_log_has_lost_the_fence(self, epoch: int) -> None:
        class Forgetful(FakeLeaders):
            def write(self, producer: Producer, *given: Any, is_control: bool = False) -> None:
                named = producer._replace(epoch=epoch) if is_control else producer
                super().write(named, *given, is_control=is_control)

        leaders = Forgetful()
        assert "lacks records" in await refused(leaders, view_of({ONE: {P0: 0}}), ONE)

    async def test_where_the_beginning_was_deleted(self) -> None:
        leaders = FakeLeaders()
        leaders.write(ONE, P0, 0)
        leaders.write(ONE, P0, 1)
        leaders.starts[P0] = 1
        why = await refused(leaders, view_of({ONE: {P0: 0}}), ONE)
        assert why == "t-0 lacks records that were there when the transaction began"
        leaders.starts[P0] = 2  # nothing of it is left
        assert await refused(leaders, view_of({ONE: {P0: 0}}), ONE) == why

    async def test_where_a_leader_refuses_to_fence(self) -> None:
        leaders = FakeLeaders()
        leaders.errors[P0] = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert "WriteTxnMarkers for t-0 failed" in await refused(leaders, view_of({ONE: {P0: 0}}), ONE)

    async def test_where_records_can_not_be_read(self, autojump_clock: MockClock) -> None:
        class Slow(FakeLeaders):
            async def ask(self, places: Any, question: Any) -> Any:
                await trio.sleep(0.5)
                return await super().ask(places, question)

        leaders = Slow()
        leaders.write(ONE, P0, 0)
        leaders.unreadable[P0] = 1
        assert await refused(leaders, view_of({ONE: {P0: 0}}), ONE) == "t-0: t-0 can be read up to 1, no further"

    @pytest.mark.parametrize("error", [OSError("closed"), RemoteProtocolError("no version")])
    async def test_where_no_leader_answers(self, error: Exception) -> None:
        async def ask(*_: object) -> None:
            raise error

        with pytest.raises(Uncertain, match=str(error)):
            await epochs(SimpleNamespace(ask=ask)).read(view_of({ONE: {P0: 0}}), [ONE])

    async def test_where_leaders_take_too_long(self, autojump_clock: MockClock) -> None:
        async def ask(*_: object) -> None:
            await trio.sleep_forever()

        leaders = SimpleNamespace(ask=ask)
        with pytest.raises(Uncertain, match="could not be read within 30 s"):
            await epochs(leaders).read(view_of({ONE: {P0: 0}}), [ONE])


class TestFence:
    async def test_the_two_newest_producer_ids_are_fenced(self) -> None:
        leaders = FakeLeaders()
        await epochs(leaders).fence([1, 4, 3], Producer(3, 9), [P0])
        assert leaders.markers == {P0: [(4, LAST_EPOCH + 1), (3, 9)]}

    @pytest.mark.parametrize("error", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION])
    async def test_without_the_right_to_fence_nothing_is_done(self, error: ErrorCode) -> None:
        leaders = FakeLeaders()
        leaders.errors[P0] = error
        await epochs(leaders).fence([3], Producer(3, 9), [P0])
        leaders.errors[P1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(LogError, match="WriteTxnMarkers for t-1"):
            await epochs(leaders).fence([3], Producer(3, 9), [P0, P1])
