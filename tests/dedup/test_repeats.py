import pytest

from kproxy.codec.batch import Record, build_batch
from kproxy.dedup import repeats as module
from kproxy.dedup.digest import Digest
from kproxy.dedup.repeats import MOST_BYTES, ReceivedBatch, Repeats

NOW = 1_000
ROOMY = 1 << 26


def batch(*values: str, partition: int = 0, at: int = 5, codec: int = 0, arrival: int = NOW) -> ReceivedBatch:
    rows = [Record(index, at, None, value.encode()) for index, value in enumerate(values)]
    return ReceivedBatch("t", partition, bytes(build_batch(rows, codec=codec)), arrival)


def test_what_is_retried_over_the_same_connection_is_new() -> None:
    repeats = Repeats(ROOMY)
    assert [repeats.came(1, [batch("a")]) for _ in range(3)] == [False] * 3


@pytest.mark.parametrize(
    "again",
    [batch("a", "b"), batch("b"), batch("new", "a"), batch("b", "a", codec=1)],
    ids=["as it was", "a part", "with others", "compressed and in another order"],
)
def test_a_record_that_is_retried_over_another_connection_is_known(again: ReceivedBatch) -> None:
    repeats = Repeats(ROOMY)
    assert not repeats.came(1, [batch("a", "b")])
    assert repeats.came(2, [batch("c"), again])
    assert repeats.came(1, [again, batch("d")])


def test_what_is_retried_over_one_connection_is_new_also_where_others_are_in_use() -> None:
    repeats = Repeats(ROOMY)
    assert not repeats.came(2, [batch("a")])
    assert not repeats.came(1, [batch("b")])
    assert not repeats.came(1, [batch("b")])
    assert not repeats.came(2, [batch("a")])
    assert repeats.came(1, [batch("a")])


@pytest.mark.parametrize("times", [(5, NOW), (NOW, 5)])
def test_a_record_with_a_timestamp_may_be_retried_without_one(times: tuple[int, int]) -> None:
    repeats = Repeats(ROOMY)
    first, second = times
    assert not repeats.came(1, [batch("a", at=first)])
    assert repeats.came(2, [batch("a", at=second)])


def test_a_retry_with_a_new_timestamp_is_known_where_the_client_renews_them() -> None:
    for renews in (True, False):
        repeats = Repeats(ROOMY, at_any_time=renews)
        assert not repeats.came(1, [batch("a", at=5)])
        assert repeats.came(2, [batch("a", at=6)]) is renews


def test_hashes_are_bounded_and_those_of_what_came_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_RECORDS", 3)
    repeats = Repeats(ROOMY)
    for number in range(20):
        assert not repeats.came(number % 2, [batch(str(number))])
        assert repeats.came(2, [batch(str(number))])
    assert not repeats.came(3, [batch("0")])


def test_what_was_hashed_takes_no_room_as_bytes_any_more() -> None:
    repeats = Repeats(ROOMY)
    half = [letter * (MOST_BYTES // 2 - 1000) for letter in "abc"]
    for value in half:
        repeats.came(1, [batch(value)])
        repeats.came(2, [batch("new")])
    assert repeats.came(2, [batch(half[0])])


@pytest.mark.parametrize(
    "other",
    [batch("c"), batch("a", partition=1), batch("a", at=6), batch("a")._replace(topic="u")],
    ids=["value", "partition", "time", "topic"],
)
def test_other_records_are_not_taken_for_it(other: ReceivedBatch) -> None:
    repeats = Repeats(ROOMY)
    repeats.came(1, [batch("a", "b")])
    assert not repeats.came(2, [other])


def test_records_without_times_of_their_own_are_known_by_their_bytes() -> None:
    repeats = Repeats(ROOMY)
    assert not repeats.came(1, [batch("a", at=NOW)])
    assert not repeats.came(2, [batch("b", at=NOW + 9, arrival=NOW + 9)])
    assert repeats.came(2, [batch("a", at=NOW + 9, arrival=NOW + 9)])


def test_what_is_large_is_kept_by_its_hashes_and_what_is_old_is_forgotten() -> None:
    repeats = Repeats(ROOMY)
    large = "x" * (MOST_BYTES + 1)
    assert not repeats.came(1, [batch(large), batch("a")])
    assert repeats.came(2, [batch(large)])
    assert repeats.came(3, [batch("a")])
    half = [str(number) * (MOST_BYTES // 2) for number in range(3)]
    assert not any(repeats.came(1, [batch(value, partition=1)]) for value in half)
    assert not repeats.came(2, [batch(half[0], partition=1)])


def test_damage_is_left_to_the_broker() -> None:
    repeats = Repeats(ROOMY)
    damaged = batch("a")._replace(batch=bytes(70))
    assert not repeats.came(1, [damaged])
    assert not repeats.came(2, [damaged])


def test_what_was_hashed_on_one_partition_leaves_its_room_to_others() -> None:
    repeats = Repeats(ROOMY)
    half = "x" * (MOST_BYTES // 2 - 1000)
    for partition in range(5):
        assert not repeats.came(1, [batch(half, partition=partition)])
        assert not repeats.came(2, [batch("new", partition=partition)])
    assert repeats.came(2, [batch(half, partition=0)])


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each batch whose records were read."""
    sizes: list[int] = []
    read = module.read_batch

    def noted(data: memoryview | bytes, **options: int) -> list[tuple[Digest, int]]:
        sizes.append(len(data))
        return read(data, **options)

    monkeypatch.setattr(module, "read_batch", noted)
    return sizes


def test_a_connection_of_which_nothing_is_kept_any_more_costs_nothing(
    hashed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_RECORDS", 3)
    repeats = Repeats(ROOMY)
    for value in ("old", "older"):
        assert not repeats.came(1, [batch(value)])
    for value in "abcde":
        assert not repeats.came(2, [batch(value)])
    assert hashed
    read = len(hashed)
    assert not repeats.came(2, [batch("new")])
    assert len(hashed) == read
    # a client that reconnects for ever would take more and more memory otherwise
    assert repeats._connections.keys() == {("t", 0)}
    assert repeats._connections["t", 0].keys() == {2}


def test_a_connection_of_which_something_is_forgotten_is_compared_with_the_rest() -> None:
    repeats = Repeats(ROOMY)
    half = [letter * (MOST_BYTES // 2 - 1000) for letter in "abcd"]
    for value in half:
        assert not repeats.came(1, [batch(value)])
    assert not repeats.came(2, [batch(half[0])])
    assert repeats.came(2, [batch(half[3])])
