"""The order of sequences."""

from kproxy.codec.sequence import SEQUENCE_SPACE
from kproxy.dedup.kept.numbers import is_before


def test_sequences_begin_again() -> None:
    assert is_before(1, 2)
    assert not is_before(2, 1)
    assert not is_before(1, 1)
    assert is_before(SEQUENCE_SPACE - 1, 0)
    assert not is_before(0, SEQUENCE_SPACE - 1)
