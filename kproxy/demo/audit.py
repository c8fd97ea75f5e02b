"""The proof: what is in the broker's log, compared with what was sent."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from kproxy.codec.batch import BatchHeader, iter_records, read_header
from kproxy.demo.demo_clients import record_number
from kproxy.testing.cluster_client import ClusterClient

_MAX_DECOMPRESSED_BYTES: Final = 1 << 26


@dataclass
class LogTally:
    """What a log holds: batches, how many carry (producer id, epoch, sequence), and each record number's copies."""

    batches: int = 0
    stamped_batches: int = 0
    stamped_records: int = 0
    copies: Counter[int] = field(default_factory=Counter)

    def add(self, record_set: bytes) -> None:
        view, position = memoryview(record_set), 0
        while position < len(view):
            header = read_header(view, position)
            self._count(header, view[position : position + header.size])
            position += header.size

    def _count(self, header: BatchHeader, batch: memoryview) -> None:
        numbers = [
            record_number(bytes(record.value))
            for record in iter_records(batch, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES)
            if record.value is not None
        ]
        self.copies.update(numbers)
        self.batches += 1
        if is_stamped(header):
            self.stamped_batches += 1
            self.stamped_records += len(numbers)


@dataclass(frozen=True)
class AuditVerdict:
    """The figures of the closing table, in records unless named otherwise."""

    sent: int
    acknowledged: int
    in_log: int
    stamped: int
    batches: int
    stamped_batches: int
    consumed: int
    lost: int
    duplicate: int

    @property
    def good(self) -> bool:
        """Everything sent was acknowledged, is in the log once, stamped, and was consumed."""
        return (
            self.lost == self.duplicate == 0
            and self.sent == self.acknowledged == self.in_log == self.stamped == self.consumed
        )


def read_log(bootstrap: str, topic: str, partitions: int) -> LogTally:
    """Read all of a topic straight from its brokers."""
    tally = LogTally()
    with ClusterClient(bootstrap) as client:
        for partition in range(partitions):
            tally.add(client.read_all(topic, partition))
    return tally


def is_stamped(header: BatchHeader) -> bool:
    """Whether a batch carries a producer id, an epoch and a sequence number (KIP-98)."""
    return header.magic == 2 and min(header.producer_id, header.producer_epoch, header.base_sequence) >= 0


def judge(sent: int, acknowledged: Iterable[int], consumed: Iterable[int], log: LogTally) -> AuditVerdict:
    """Compare: lost = acknowledged but not in the log or never consumed, duplicate = copies beyond the first."""
    known, read = set(acknowledged), Counter(consumed)
    return AuditVerdict(
        sent=sent,
        acknowledged=len(known),
        in_log=log.copies.total(),
        stamped=log.stamped_records,
        batches=log.batches,
        stamped_batches=log.stamped_batches,
        consumed=read.total(),
        lost=sum(number not in log.copies or number not in read for number in known),
        duplicate=(log.copies.total() - len(log.copies)) + (read.total() - len(read)),
    )
