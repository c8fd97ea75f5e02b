"""Which batches are ruled out as retries without a comparison of their records."""

from collections.abc import Sequence

import pytest

from kproxy.codec.batch import Record, build_batch
from kproxy.codec.produce_layout import PartitionData
from kproxy.codec.records import LOG_APPEND_TIME
from kproxy.dedup.digest import UNTIMED, Digest, Digests
from kproxy.dedup.lanes import TrackKey
from kproxy.dedup.origin import Origin
from kproxy.dedup.quick_check import QuickCheck
from kproxy.dedup.unconfirmed import PendingProduce, Stamp, UnconfirmedBatch
from kproxy.proxy.retries import digests_at
from tests.dedup.talk import KEY, LIMIT, OTHER, Talk, World, batch_of
from tests.dedup.wires import CLEAN_WINDOW, RULES

NOW = 1000.0


def entry(
    text: str, *, time: int = 50, sure: bool = False, clean: bool = True, window: float = 0.0
) -> UnconfirmedBatch:
    one = UnconfirmedBatch(KEY, Stamp(5, 0, 0, 40, len(text)), 1, sure=sure, clean=clean, since=NOW)
    one.taken_at, one.origin = NOW, Origin(clean_window=window, ended=True)
    digests = Digests.of(Digest(content, time) for content, _ in digests_at(batch_of(text), LIMIT)[0])
    one.recall(digests, list(range(40, 40 + len(text))))
    return one


def clears(entries: list[UnconfirmedBatch], batch: bytes, *, now: float = NOW, arrival_ms: int | None = None) -> bool:
    check = QuickCheck.of(entries, RULES, now)
    assert check is not None
    return check.clears(memoryview(batch), arrival_ms)


@pytest.mark.parametrize(("time", "cleared"), [(49, True), (50, False), (51, True)])
def test_timestamps_decide_after_a_clean_end(time: int, cleared: bool) -> None:
    assert clears([entry("ab")], batch_of("ab", time)) is cleared


def test_the_range_of_all_entries_counts() -> None:
    entries = [entry("a", time=50), entry("b", time=70)]
    assert [clears(entries, batch_of("c", time)) for time in (49, 60, 71)] == [True, False, True]


def test_a_batch_that_reaches_into_the_range_is_compared() -> None:
    records = [Record(0, 40, None, b"x", ()), Record(1, 50, None, b"a", ())]
    assert not clears([entry("a")], bytes(build_batch(records)))


def mixed(*records: tuple[int, bytes], codec: int = 0) -> bytes:
    """A batch of records with these timestamps and values."""
    return bytes(build_batch([Record(at, *one, ()) for at, one in enumerate(pairs(records))], codec=codec))


def pairs(records: Sequence[tuple[int, bytes]]) -> list[tuple[int, None, bytes]]:
    return [(time, None, value) for time, value in records]


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_a_retry_after_a_newer_record_is_found_where_a_connection_broke(codec: int) -> None:
    """The header has the timestamp of the first record and the largest one, not the smallest."""
    retry_last = mixed((5050, b"new"), (50, b"a"), codec=codec)
    assert not clears([entry("a", clean=False)], retry_last)
    assert not clears([entry("a", window=CLEAN_WINDOW)], retry_last), "a balancer may have closed it"
    assert clears([entry("a", clean=False)], mixed((5050, b"new"), (51, b"a"), codec=codec))


def test_after_an_end_in_good_order_the_header_decides_alone() -> None:
    """No retry is expected: the client has received every response."""
    batch = bytearray(mixed((5050, b"new"), (5060, b"a")))
    del batch[62:]  # its records could not be read
    assert clears([entry("a")], bytes(batch))
    assert not clears([entry("a", clean=False)], bytes(batch))


def test_a_batch_with_one_record_needs_no_look_at_it() -> None:
    assert clears([entry("a", clean=False)], mixed((5050, b"new"))[:62])


def test_a_record_that_reaches_beyond_its_batch_leaves_it_to_the_comparison() -> None:
    batch = bytearray(mixed((5050, b"new"), (5060, b"a")))
    batch[61] = 0x7E
    assert not clears([entry("a", clean=False)], bytes(batch))


def test_a_max_timestamp_below_the_base_timestamp_proves_nothing() -> None:
    batch = bytearray(batch_of("ab", 40))
    batch[35:43] = (39).to_bytes(8, "big")
    assert not clears([entry("ab")], bytes(batch))


@pytest.mark.parametrize(("text", "cleared"), [("ax", False), ("xa", True)])
def test_the_first_record_decides_where_timestamps_do_not_count(text: str, cleared: bool) -> None:
    assert clears([entry("ab", sure=True, clean=False)], batch_of(text, 99)) is cleared


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_the_first_record_is_read_from_compressed_batches(codec: int) -> None:
    batch = bytes(build_batch([Record(0, 99, None, b"a", ())], codec=codec))
    assert not clears([entry("a", sure=True, clean=False)], batch)


def test_records_without_timestamps_are_compared_only_as_long_as_the_rule_allows() -> None:
    arrival = 99
    batch = batch_of("a", arrival)
    declared, later = entry("a", window=CLEAN_WINDOW), NOW + CLEAN_WINDOW
    assert not clears([declared], batch, arrival_ms=arrival)
    assert clears([declared], batch, now=later, arrival_ms=arrival)
    assert clears([entry("a")], batch, arrival_ms=arrival)
    assert not clears([entry("a", clean=False)], batch, now=later, arrival_ms=arrival)


def test_entries_without_timestamps_are_found_by_their_content() -> None:
    broken = [entry("a", time=UNTIMED, clean=False)]
    assert not clears(broken, batch_of("a", 99))
    assert clears(broken, batch_of("b", 99))


@pytest.mark.parametrize("batch", [b"", b"\0" * 60, *(bytes(16) + magic + bytes(60) for magic in (b"\1", b"\3"))])
def test_what_is_no_batch_of_format_2_is_left_to_the_comparison(batch: bytes) -> None:
    assert not clears([entry("a")], batch)


def test_a_batch_whose_records_cannot_be_read_is_left_to_the_comparison() -> None:
    assert not clears([entry("a", sure=True, clean=False)], batch_of("a", 99)[:62])


def test_there_is_no_check_before_all_is_read_back() -> None:
    unread = UnconfirmedBatch(KEY, Stamp(5, 0, 0, 40, 1), 1, sure=False, clean=True, since=NOW)
    assert QuickCheck.of([entry("a"), unread], RULES, NOW) is None


@pytest.mark.parametrize(("time", "sure"), [(50, True), (UNTIMED, False)])
def test_a_retry_is_compared_where_another_record_took_the_first_of_its_batch(time: int, sure: bool) -> None:
    """The retry of the batch begins with that one, whose equal was taken without a look at timestamps."""
    rest = entry("ab", time=time, sure=sure, clean=False)
    rest.part([0])
    arrival = 99
    assert not clears([entry("c"), rest], batch_of("ab", arrival), arrival_ms=arrival if time == UNTIMED else None)


def test_a_part_with_timestamps_is_found_by_these() -> None:
    rest = entry("ab", clean=False)
    rest.part([0])
    assert not clears([rest], batch_of("ab", 50))
    assert clears([rest], batch_of("ab", 51))


def test_a_check_ends_when_fewer_records_can_be_repeated() -> None:
    declared = [entry("a", window=CLEAN_WINDOW)]
    check = QuickCheck.of(declared, RULES, NOW)
    assert check is not None
    assert check.until == NOW + CLEAN_WINDOW
    later = QuickCheck.of(declared, RULES, check.until)
    assert later is not None
    assert later.until == NOW + RULES.window


def settled(world: World, *, reset: bool) -> Talk:
    """A second connection that has sent only new records since the first one ended."""
    first, second = world.connect(), world.connect()
    first.did("ab", time=50)
    first.close(reset=reset)
    for number in range(RULES.settled_requests(1)):
        assert second.check() is None
        second.did("c", time=60 + number)
    return second


@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_is_compared_in_full_first(reset: bool) -> None:
    assert settled(World(), reset=reset).check() is not None


def test_a_retry_is_still_found_then() -> None:
    world = World()
    second = settled(world, reset=True)
    before = world.text()
    second.did("ab", time=50)
    assert world.text() == before


def test_after_a_retry_the_connection_is_compared_in_full_again() -> None:
    second = settled(World(), reset=True)
    for number in range(RULES.settled_requests(1)):
        second.did("a" if number == 0 else "c", time=50 if number == 0 else 90 + number)
        assert second.check() is None
    second.did("c", time=100)
    assert second.check() is not None


def test_each_connection_is_compared_by_itself() -> None:
    world = World()
    settled(world, reset=True)
    assert world.connect().check() is None


def test_a_new_doubt_ends_all_checks_of_the_partition() -> None:
    world = World()
    second = settled(world, reset=True)
    third = world.connect()
    third.did("d", time=80)
    third.close(reset=True)
    assert second.check() is None
    second.did("e", time=90)
    assert second.check() is None, "it is compared in full as often as before"


def test_what_another_live_connection_was_not_answered_is_found() -> None:
    world = World()
    second = settled(world, reset=True)
    third = world.connect()
    third.did("d", time=80)
    third.wire.gone, third.wire.reset = True, True  # kproxy has not read the end of the connection yet
    before = world.text()
    second.did("d", time=80)
    assert world.text() == before


def cleared(talk: Talk, *texts: str, keys: Sequence[TrackKey] = (KEY,), time: int = 99, start: int = 0) -> bool:
    """Whether a request with one batch for each partition is taken without a comparison."""
    frame, places = bytearray(), []
    for key, text in zip(keys, texts, strict=True):
        batch = batch_of(text, time)
        places.append(PartitionData(key, start or len(frame), len(frame) + len(batch)))
        frame += batch
    return talk.is_cleared(PendingProduce(places, 1e9), frame)


def test_new_batches_of_a_settled_connection_are_taken_without_a_comparison() -> None:
    second = settled(World(), reset=True)
    assert cleared(second, "x")
    assert not cleared(second, "a", time=50)
    assert not cleared(second, "x", start=-1)  # a record set that is null


def test_every_partition_of_a_request_has_to_be_cleared() -> None:
    world = World()
    second = settled(world, reset=True)
    assert not cleared(second, "x", "y", keys=(KEY, OTHER))
    second.did("y", keys=(OTHER,))  # nothing is in doubt there
    assert cleared(second, "y", "x", keys=(OTHER, KEY))
    assert not cleared(second, "y", "a", keys=(OTHER, KEY), time=50)


def test_after_another_connection_has_used_the_partition_the_next_request_is_checked() -> None:
    world = World()
    second, third = settled(world, reset=True), world.connect()
    third.did("z", time=98)
    assert not cleared(second, "x")


def test_a_check_holds_until_fewer_records_can_be_repeated_and_no_longer() -> None:
    world = World()
    first, second = world.connect(clean_window=CLEAN_WINDOW), world.connect(clean_window=CLEAN_WINDOW)
    since = world.now
    first.did("ab", time=50)
    first.close()
    for number in range(RULES.settled_requests(1)):
        second.did("c", time=60 + number)
    assert second.check() is not None
    world.now = since + CLEAN_WINDOW
    assert second.check() is None


def test_timestamps_of_the_broker_are_not_the_clients() -> None:
    batch = bytearray(batch_of("a", 99))
    batch[21:23] = LOG_APPEND_TIME.to_bytes(2, "big")
    assert not clears([entry("a", clean=False)], bytes(batch))


def test_the_arrival_in_the_range_of_what_is_in_doubt_says_nothing() -> None:
    assert clears([entry("a")], batch_of("b", 50), arrival_ms=50)


def test_entries_without_timestamps_do_not_widen_the_range_of_those_that_have_some() -> None:
    entries = [entry("a", time=UNTIMED), entry("b", time=50)]
    assert clears(entries, batch_of("c", 40))
