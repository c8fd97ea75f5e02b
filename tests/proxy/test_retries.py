"""What is taken out of a request since its client had sent it before."""

import pytest

from kproxy.budget import READ_RECORD_STEPS, unbounded
from kproxy.codec.batch import Record, build_batch, iter_records, read_header
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import PartitionData
from kproxy.dedup.digest import UNTIMED, Digest, Digests
from kproxy.dedup.lanes import TrackKey
from kproxy.dedup.producer_connection import ProducerConnection, Suspect
from kproxy.dedup.unconfirmed import PendingProduce, Stamp, UnconfirmedBatch
from kproxy.proxy.produce_calls import PartitionCall
from kproxy.proxy.retries import Batch, Retries, digests_at, digests_in
from kproxy.proxy.stats import Stats
from tests.dedup.readings import Batches
from tests.dedup.wires import ONE, RULES, FakeWire, Ledgers, ledger, member
from verification.simulation.contents import Content
from verification.simulation.record_sets import record_set

KEY = (b"t", 0)
LIMIT = 1 << 20
NOW = 1000.0


def batch(text: str, *, time: int = 7, codec: int = 0) -> bytes:
    records = [Record(at, time, None, letter.encode(), ()) for at, letter in enumerate(text)]
    return bytes(build_batch(records, codec=codec))


def in_doubt(one: ProducerConnection, text: str, *, sure: bool = False) -> UnconfirmedBatch:
    """Records in doubt at offset 40 and behind."""
    entry = UnconfirmedBatch(KEY, Stamp(5, 0, 0, 40, len(text)), 1, sure=sure, clean=False, since=NOW)
    entry.recall(digests_at(batch(text), LIMIT)[0], list(range(40, 40 + len(text))))
    one.ledger.add(entry)
    return entry


class Taker:
    """Compares the batches of one request, one after the other."""

    def __init__(self, one: ProducerConnection, answer: PendingProduce, stats: Stats) -> None:
        self._reading = Batches(LIMIT)
        self._retries = Retries(one, answer, NOW, self._reading, stats.retries)

    def strip(self, batch: Batch, arrival_ms: int | None = None) -> list[Batch]:
        return self._reading.strip(self._retries, batch, arrival_ms)

    @property
    def new(self) -> set[TrackKey]:
        return self._retries.new

    @property
    def untimed(self) -> TrackKey | None:
        return self._retries.untimed


def retries(one: ProducerConnection) -> tuple[Taker, PendingProduce, Stats]:
    answer, stats = PendingProduce([PartitionData(KEY, 0, 0)], NOW), Stats()
    return Taker(one, answer, stats), answer, stats


def test_nothing_is_left_of_what_is_in_the_log() -> None:
    one, part = member(), PartitionCall(*KEY)
    in_doubt(one, "ab")
    taker, answer, stats = retries(one)
    assert taker.strip((part, memoryview(batch("ab")), 2)) == []
    assert part.matched == [40, 41]
    assert (stats.retries.records_matched, stats.retries.records_stripped) == (2, 0)
    assert [list(entry.offsets) for entry in answer.moved] == [[40, 41]]
    assert taker.new == set()


@pytest.mark.parametrize("codec", [0, 1])
def test_what_is_new_is_left_with_its_codec(codec: int) -> None:
    one, part = member(), PartitionCall(*KEY)
    in_doubt(one, "ab")
    taker, _, stats = retries(one)
    ((_, rest, count),) = taker.strip((part, memoryview(batch("xby", codec=codec)), 3))
    assert [record.value for record in iter_records(rest, max_decompressed_bytes=LIMIT)] == [b"x", b"y"]
    assert (count, read_header(rest).attributes & 7) == (2, codec)
    assert (part.matched, stats.retries.records_stripped) == ([41], 1)
    assert taker.new == {KEY}


def test_what_is_new_is_left_as_it_was() -> None:
    """Key, value, headers and timestamp."""
    one, part = member(), PartitionCall(*KEY)
    in_doubt(one, "a")
    new = [
        Record(0, 50, b"k", b"x", (("h", b"1"), ("h", None))),
        Record(1, 40, b"k", None, (("g", b""),)),
        Record(2, 60, None, b"y", ()),
    ]
    mixed = [new[0], Record(1, 7, None, b"a", ()), *(record._replace(offset=record.offset + 1) for record in new[1:])]
    taker, _, _ = retries(one)
    ((_, rest, _),) = taker.strip((part, memoryview(build_batch(mixed)), 4))
    assert list(iter_records(rest, max_decompressed_bytes=LIMIT)) == new


@pytest.mark.parametrize(("time", "untimed"), [(7, 0), (9, 1), (UNTIMED, 1)])
def test_a_match_without_an_equal_timestamp_is_counted(time: int, untimed: int) -> None:
    one, part = member(), PartitionCall(*KEY)
    in_doubt(one, "a", sure=True)
    taker, _, stats = retries(one)
    assert taker.strip((part, memoryview(batch("a", time=time)), 1)) == []
    assert (stats.retries.records_matched, stats.retries.records_matched_untimed) == (1, untimed)
    assert taker.untimed == (KEY if untimed else None)


def test_each_record_in_doubt_is_taken_once() -> None:
    one, part = member(), PartitionCall(*KEY)
    in_doubt(one, "a")
    taker, _, _ = retries(one)
    assert taker.strip((part, memoryview(batch("a")), 1)) == []
    assert len(taker.strip((part, memoryview(batch("a")), 1))) == 1


def test_records_without_a_time_of_their_own_are_found() -> None:
    one, part = member(), PartitionCall(*KEY)
    in_doubt(one, "a")
    taker, _, _ = retries(one)
    assert taker.strip((part, memoryview(batch("a", time=99)), 1), arrival_ms=99) == []


def test_what_was_taken_for_another_time_is_only_that_ones_to_repeat() -> None:
    one = member()
    in_doubt(one, "a", sure=True)
    taker, answer, _ = retries(one)
    assert taker.strip((PartitionCall(*KEY), memoryview(batch("a", time=99)), 1)) == []
    (moved,) = answer.moved
    moved.sure = False  # it received a success, beside an error
    one.ledger.add(moved)
    taker, _, _ = retries(one)
    assert len(taker.strip((PartitionCall(*KEY), memoryview(batch("a")), 1))) == 1
    assert taker.strip((PartitionCall(*KEY), memoryview(batch("a", time=99)), 1)) == []


def test_what_is_damaged_is_passed_on_unchanged() -> None:
    one, part = member(), PartitionCall(*KEY)
    data = bytearray(batch("a"))
    data[-1] ^= 1
    taker, _, _ = retries(one)
    assert taker.strip((part, memoryview(data), 1)) == [(part, memoryview(data), 1)]


def test_what_a_newer_connection_outran_is_dropped() -> None:
    book = ledger()
    old, new = book.join(ONE, FakeWire(), 1.0), book.join(ONE, FakeWire(), 2.0)
    _, answer, stats = retries(new)
    new.ledger.claim(new, answer, [KEY], NOW)
    old.end(NOW)
    taker, _, stats = retries(old)
    part = PartitionCall(*KEY)
    assert taker.strip((part, memoryview(batch("a")), 1)) == []
    assert (stats.retries.requests_dropped, part.error_code) == (1, ErrorCode.REQUEST_TIMED_OUT)


@pytest.mark.parametrize(
    ("recorded_at", "returned", "ended", "is_dropped"),
    [(1.5, False, True, True), (-5.0, False, True, False), (1.5, True, True, False), (1.5, False, False, False)],
)
def test_what_came_over_a_connection_that_has_ended_is_dropped_if_another_instance_has_a_newer_lease(
    recorded_at: float, returned: bool, ended: bool, is_dropped: bool
) -> None:
    elsewhere = Suspect(77, 0, 31, elsewhere=True, recorded_at=recorded_at, returned=returned)
    one = Ledgers(RULES, elsewhere=lambda _: [elsewhere]).enter(ONE, FakeWire(), 1.0)
    if ended:
        one.end(NOW)
    taker, _, stats = retries(one)
    assert bool(taker.strip((PartitionCall(*KEY), memoryview(batch("a")), 1))) is not is_dropped
    assert stats.retries.requests_dropped == is_dropped


def known(records: bytes) -> Digests:
    place = PartitionData((b"t", 0), 3, 3 + len(records))
    return digests_in(bytearray(b"xxx" + records), place, 1 << 20, unbounded().on_loop())


def test_records_are_known_in_any_format() -> None:
    expected = known(record_set(2, 0, [(7, Content(b"a")), (8, Content(b"b"))]))
    assert [digest.timestamp_ms for digest in expected] == [7, 8]
    untimed = Digests.of(Digest(content, UNTIMED) for content in expected.contents())
    for magic, codec in (0, 0), (0, 1), (1, 0), (1, 2), (2, 3):
        assert known(record_set(magic, codec, [(7, Content(b"a")), (8, Content(b"b"))])) == (
            expected if magic else untimed
        )


@pytest.mark.parametrize(
    "records", [b"", b"short", record_set(2, 0, [(7, Content(b"a"))])[:-1], record_set(1, 0, [(7, Content(b"a"))])[:-1]]
)
def test_of_what_is_damaged_nothing_is_known(records: bytes) -> None:
    assert known(records) == Digests()


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_of_what_takes_long_nothing_is_known(magic: int) -> None:
    """The records are read on the loop: those of a small compressed set, too, in whatever format it is."""
    most = unbounded().on_loop().steps // READ_RECORD_STEPS
    for count in (1, most + 1):
        records = record_set(magic, 1, [(7, Content(b"a"))] * count)
        assert len(known(records)) == (count if count <= most else 0)
