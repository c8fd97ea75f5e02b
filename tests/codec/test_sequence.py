import pytest

from kproxy.codec.sequence import advance, distance

TOP = (1 << 31) - 1


@pytest.mark.parametrize(
    ("sequence", "records", "following"),
    [(0, 1, 1), (0, 500, 500), (TOP, 1, 0), (TOP - 1, 1, TOP), (TOP - 2, 5, 2), (TOP, TOP, TOP - 1)],
)
def test_the_sequence_after_a_batch(sequence: int, records: int, following: int) -> None:
    assert advance(sequence, records) == following


def test_batches_cut_in_any_way_end_at_the_same_sequence() -> None:
    start = TOP - 10
    assert advance(advance(advance(start, 7), 7), 7) == advance(start, 21) == 10


@pytest.mark.parametrize(
    ("sequence", "other", "records"), [(3, 3, 0), (3, 10, 7), (TOP, 0, 1), (TOP - 1, 2, 4), (1, 0, TOP)]
)
def test_how_far_a_sequence_is_after_another(sequence: int, other: int, records: int) -> None:
    assert distance(sequence, other) == records
    assert advance(sequence, records) == other
