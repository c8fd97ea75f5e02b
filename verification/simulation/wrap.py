"""Sequence numbers that begin near their end, so that a short run reaches the wrap from 2^31 - 1 to 0."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from kproxy.codec.sequence import SEQUENCE_SPACE
from kproxy.dedup.lanes import Lane, Track, TrackKey
from kproxy.testing.fake_broker.partition_log import PartitionLog

_TRACK = Lane.track


def write_much(log: PartitionLog) -> None:
    """Lets an empty log have had as many records as there are sequence numbers, all of them deleted since."""
    if not log.end_offset:
        log.start_offset = log.end_offset = SEQUENCE_SPACE


@contextmanager
def sequences_from(first: int) -> Iterator[None]:
    """Lets each producer id begin at this sequence on a partition, until the block ends.

    A broker takes any sequence from a producer id that it does not know. So only the first lease of an id begins there:
    its next epochs begin at 0.
    """

    def track(lane: Lane, key: TrackKey) -> Track:
        is_new = key not in lane.tracks
        found = _TRACK(lane, key)
        if is_new and not lane.epoch:
            found.next_sequence = first
        return found

    if not first:
        yield
        return
    with patch.object(Lane, "track", track):
        yield
