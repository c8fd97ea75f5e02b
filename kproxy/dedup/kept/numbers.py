"""The order of sequences, which begin again at 0."""

from typing import Final

from kproxy.codec.sequence import SEQUENCE_SPACE

#: Half of the sequences: one that is farther ahead counts as before.
_HALF: Final = SEQUENCE_SPACE // 2


def is_before(sequence: int, other: int) -> bool:
    """Whether a sequence comes before another one, also where they begin again at 0."""
    return 0 < (other - sequence) % SEQUENCE_SPACE < _HALF  # ``distance``, asked four times for each batch
