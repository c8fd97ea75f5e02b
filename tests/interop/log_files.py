"""Reads batch headers straight from a broker's log files: no client, no proxy and no codec of ours in between."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
OWN_PID_BIT: Final = 1 << 62
"""Set in every producer id that kproxy hands out, clear in every one of the broker's."""
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


class Batch(NamedTuple):
    """The header of one batch in format v2 (magic 2), as KIP-98 lays it out."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        return self.attributes & 7

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def control(self) -> bool:
        return bool(self.attributes & _CONTROL)


def batches(data_directory: Path, topic: str, partition: int) -> Iterator[Batch]:
    """Yield every batch of a partition whose segments lie under `data_directory` (`log.dirs`), in order."""
    for segment in sorted((data_directory / f"{topic}-{partition}").glob("*.log")):
        data = segment.read_bytes()
        position = 0
        while position + _HEADER.size <= len(data):
            batch = Batch(*_HEADER.unpack_from(data, position))
            yield batch
            position += 12 + batch.length


def unstamped(found: list[Batch], own: bool) -> str:
    """Return what is wrong with the batches' producer ids, epochs and sequences, or an empty string.

    :param own: whether kproxy stamped them; else their producer did, and kproxy must have left them alone.
    """
    after: dict[tuple[int, int], int] = {}
    for batch in found:
        if batch.control:
            continue
        if batch.magic != 2 or batch.producer_id < 0 or batch.producer_epoch < 0 or batch.base_sequence < 0:
            return f"not stamped: {batch}"
        if bool(batch.producer_id & OWN_PID_BIT) != own:
            return f"{'not by kproxy' if own else 'overwritten'}: {batch}"
        lane = batch.producer_id, batch.producer_epoch
        if batch.base_sequence != after.get(lane, 0):
            return f"sequence {after.get(lane, 0)} expected: {batch}"
        after[lane] = batch.base_sequence + batch.record_count
    return ""
