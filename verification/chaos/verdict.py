"""What a run has shown: the anomalies in its history, and how kproxy itself came through."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TextIO

from kproxy.codec.batch import iter_records, read_header
from kproxy.testing.cluster_client import ClusterClient
from verification.chaos.kproxy_process import Footprint
from verification.chaos.recorder import now
from verification.chaos.workload import is_deep_and_untimed, is_unnamed
from verification.history import Anomaly, AnomalyKind, Kind, Operation, Outcome, Poll

_MAX_DECOMPRESSED_BYTES: Final = 1 << 26
RESIDENT_SHARE: Final = 1.10
RESIDENT_SLACK: Final = 16 << 20
"""Bytes for what kproxy imports at the first use of an API, and for free memory."""
RETRIES_SHARE: Final = 1.25
"""Of the most that ``kproxy_retry_memory_bytes`` was, with what lies between: Python keeps pages in which any object is
left, so what was freed is used again and mostly not given back. Measured with three gateways: resident memory grew by
1.35 to 1.7 times as much, 5 MB for imports and buffers included, and fell by a tenth of that when all had expired.
"""
RETRIES_LEFT: Final = 64 << 10
"""Bytes of unconfirmed batches that may be left when ``retry.window.ms`` has passed: there should be none."""
MOST_OUT_OF_ORDER: Final = 5
MOST_UNREAD: Final = 2
MOST_REPEATED: Final = 20
DESCRIPTOR_SLACK: Final = 50
"""kproxy keeps its connections: for reading back, by default four to each broker; those of the transaction log; and one
to the coordinator for each transactional id whose coordinator is the broker.
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One thing that has to hold: what was found, and whether that is good."""

    name: str
    found: str
    good: bool


@dataclass
class Verdict:
    """Everything about a run."""

    history: list[Operation]
    anomalies: list[Anomaly]
    bars: list[Bar] = field(default_factory=list)

    @property
    def unexplained(self) -> list[Anomaly]:
        """Return the anomalies without those that can't be otherwise, up to a bar (``order_bar``, ``repeats_bar``)."""
        return [one for one in self.anomalies if not (_is_of_order(one) or _is_repeat(one))]

    @property
    def clean(self) -> bool:
        """Whether nothing was found but what can't be otherwise."""
        return not self.unexplained and all(bar.good for bar in self.bars)


def read_everything(bootstrap: str, topics: Mapping[str, int], batches: TextIO) -> Iterator[Operation]:
    """Read all partitions from their start to their end, straight from the brokers.

    :param topics: the number of partitions of each.
    :param batches: gets a line for each batch: where it stands, and its stamp.
    :raises OSError: a broker cannot be reached.
    :raises RuntimeError: a broker refuses.
    """
    with ClusterClient(bootstrap, client_id="end") as client:
        for topic, partitions in topics.items():
            for partition in range(partitions):
                invoke = now()
                data = client.read_all(topic, partition)
                batches.writelines(f"{topic}-{partition} {line}\n" for line in _headers(data))
                records = tuple(
                    (record.offset, (record.value or b"").decode("utf-8", "replace"))
                    for record in iter_records(data, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES)
                )
                polls = (Poll(topic, partition, records),)
                yield Operation("end", Kind.POLL, Outcome.OK, invoke, now(), polls=polls, final=True)


def _headers(data: bytes) -> Iterator[str]:
    """Tell offsets, producer id (in hex), epoch, sequence and times of each batch."""
    position = 0
    while position < len(data):
        header = read_header(data, position)
        last = header.base_offset + header.last_offset_delta
        stamp = f"producer {header.producer_id:x} epoch {header.producer_epoch} sequence {header.base_sequence}"
        kind = "marker" if header.is_control else f"codec {header.codec}, made {header.base_timestamp} ms"
        yield f"{header.base_offset} to {last}: {stamp}, {kind}, leader epoch {header.partition_leader_epoch}"
        position += header.size


def footprint_bars(name: str, start: Footprint, end: Footprint, kept: int = 0, retries: float = 0) -> list[Bar]:
    """Compare what a kproxy holds with nothing to do before and after: 10 % and ``RESIDENT_SLACK``.

    What is kept to recognise retries (``retries``) comes on top, with ``RETRIES_SHARE``: kproxy keeps it for
    ``retry.window.ms``. ``kproxy_batches_in_doubt`` is no measure of that. It counts neither records, nor batches of
    connections that ended in good order, nor what was found in logs, nor the lists of other instances: with three
    gateways behind a balancer these are nine tenths of it. ``forgotten_bar`` says whether it is forgotten; here
    batches that stay for ever could not be told from those that may stay.

    :param retries: the most that its ``kproxy_retry_memory_bytes`` was since its start.
    :param kept: connections to brokers that may stay open: a transactional id keeps one to each broker, until the
        broker closes it because it is idle.
    """
    sizes = f"{start.resident / 1e6:.0f} MB, then {end.resident / 1e6:.0f} MB"
    most = start.resident * RESIDENT_SHARE + RESIDENT_SLACK + retries * RETRIES_SHARE
    descriptors = f"{start.descriptors}, then {end.descriptors}"
    return [
        Bar(
            f"{name}: memory",
            f"{sizes} (at most {most / 1e6:.0f}), {retries / 1e6:.1f} MB for retries",
            end.resident <= most,
        ),
        Bar(f"{name}: descriptors", descriptors, end.descriptors <= start.descriptors + kept + DESCRIPTOR_SLACK),
    ]


def forgotten_bar(name: str, most: float, left: float | None) -> Bar:
    """What was kept for retries must be forgotten when no retry can come any more.

    :param most: the most that ``kproxy_retry_memory_bytes`` was since the start.
    :param left: what it is after ``retry.window.ms`` without a request; None if the page did not say.
    """
    found = "not on the page" if left is None else f"{left / 1e6:.2f} MB left of {most / 1e6:.1f} MB"
    return Bar(f"{name}: kept for retries", found, left is not None and left <= RETRIES_LEFT)


def order_bar(anomalies: Sequence[Anomaly]) -> Bar:
    """Records out of order, in pairs, that nobody inside kproxy can keep in order (verification/README.md).

    librdkafka without a name (KIP-511) sends later ones before it repeats refused ones, so late that kproxy waits for
    these no more. Of others a few may be unread on two connections at the same time.
    """
    unnamed = sum(_is_of_order(one) and is_unnamed(_process(one)) for one in anomalies)
    others = sum(map(_is_of_order, anomalies)) - unnamed
    found = f"{others} (at most {MOST_UNREAD}), of a client without a name {unnamed} (at most {MOST_OUT_OF_ORDER})"
    return Bar("records out of order", found, others <= MOST_UNREAD and unnamed <= MOST_OUT_OF_ORDER)


def repeats_bar(anomalies: Sequence[Anomaly], *, killed: bool) -> Bar:
    """Records without timestamps that were written twice, since kproxy was killed.

    Their client had more than five requests in flight. Nobody knows which of these it had a success for
    (verification/corners/retries.md, "What remains").
    """
    count, most = sum(map(_is_repeat, anomalies)), MOST_REPEATED if killed else 0
    return Bar("without timestamps, twice after a kill", f"{count} (at most {most})", count <= most)


def _is_of_order(anomaly: Anomaly) -> bool:
    return anomaly.kind is AnomalyKind.NONMONOTONIC_SEND


def _process(anomaly: Anomaly) -> str:
    return (anomaly.value or "").partition(":")[0]


def _is_repeat(anomaly: Anomaly) -> bool:
    return anomaly.kind is AnomalyKind.DUPLICATE and is_deep_and_untimed(_process(anomaly))


def log_bar(name: str, problems: Sequence[str]) -> Bar:
    """Count the exceptions in a log."""
    return Bar(f"{name}: exceptions", f"{len(problems)}: {problems[0][:200]}" if problems else "none", not problems)


def progress_bar(acknowledged: Mapping[str, int], processes: Sequence[str]) -> Bar:
    """Every producer must have had something acknowledged."""
    idle = without_success(acknowledged, processes)
    return Bar("producers without success", ", ".join(idle) or "none", not idle)


def without_success(acknowledged: Mapping[str, int], processes: Sequence[str]) -> list[str]:
    """Return the producers that have had nothing acknowledged yet."""
    return [name for name in processes if not acknowledged.get(name)]


def errors_bar(unexpected: Mapping[str, int]) -> Bar:
    """No old client may be told an error that it does not know what to do with, and nothing else be that must not."""
    text = ", ".join(f"{name} {count}" for name, count in sorted(unexpected.items()))
    return Bar("what must not be", text or "none", not unexpected)
