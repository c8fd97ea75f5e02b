"""Produce requests of kept producers: relayed as they are, while the brokers have no error about their numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kproxy.codec._generated.produce import ProduceResponse
from kproxy.codec.batch import build_batch, iter_raw_records, read_header, stamp
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import FIRST_TOPIC_ID
from kproxy.codec.records import CODEC_MASK
from kproxy.codec.sequence import advance
from kproxy.dedup.kept.producers import Flow, KeptPartition, Missing
from kproxy.dedup.kept.steps import REPAIRED, KeptBatch, Told
from kproxy.dedup.lanes import TrackKey
from kproxy.dedup.losses import Loss, ReportLoss
from kproxy.dedup.produce_outcome import ProduceOutcome, outcome_of

#: Of a batch that is missing in the response: error, offset, time of the append.
_NO_RESULT: Final = (int(ErrorCode.UNKNOWN_SERVER_ERROR), -1, -1)


class KeptPart(NamedTuple):
    """One batch of a kept producer, and what is known of its partition."""

    key: TrackKey
    batch: KeptBatch
    partition: KeptPartition
    start: int
    end: int


@dataclass(slots=True, eq=False)
class KeptCall:
    """One Produce request of a kept producer."""

    frame: bytearray
    parts: list[KeptPart]
    version: int
    timeout_ms: int
    #: The serial number of the connection over which it came.
    connection: int
    #: The batches about whose numbers the broker has an error; None: it has not answered.
    wrong: list[tuple[KeptPart, Told]] | None = None
    #: All of its batches have a response, or will have none.
    done: bool = False
    #: Its batches are sent one by one, after a look at what the broker knows.
    is_apart: bool = False
    #: The requests of its connection, None if these say nothing; and its own number among them.
    flow: Flow | None = None
    nth: int = 0

    def answered(self, results: Mapping[TrackKey, tuple[int, int, int]], report: ReportLoss) -> None:
        """Takes the broker's response; may be called again with it."""
        if self.wrong is not None:
            return
        self.wrong = []
        for part in self.parts:
            error, offset, append_ms = results.get(part.key, _NO_RESULT)
            _, epoch, sequence, records, arrival = part.batch
            partition = part.partition
            if not error:
                missing = partition.written(epoch, sequence, records, offset)
                if missing is not None:
                    report_missing(part, missing, report)
                partition.answers(epoch, self.flow, self.nth)
            elif error in REPAIRED:
                self.wrong.append((part, Told(error, offset, append_ms)))
                continue
            elif outcome_of(error) is ProduceOutcome.OPEN:
                partition.doubts(epoch, sequence)
            partition.ends(sequence, refused=bool(error), arrival=arrival)
        if not self.wrong:
            self.finish()

    def dropped(self) -> None:
        """Records that what has no response yet will have none."""
        for part in self.parts if self.wrong is None else [part for part, _ in self.wrong]:
            part.partition.doubts(part.batch.epoch, part.batch.sequence)
            part.partition.ends(part.batch.sequence, refused=True, arrival=part.batch.arrival)
        self.finish()

    def finish(self) -> None:
        """Frees the frame, which others need not hold on to: each batch has a response, or will have none."""
        self.done, self.frame = True, bytearray()


def report_missing(part: KeptPart, missing: Missing | None, report: ReportLoss) -> None:
    """Reports acknowledged records of a producer that turn out to be missing, if there are any."""
    if missing is not None:
        report(Loss(part.key, part.batch.producer_id, *missing))


class RepairRequest(NamedTuple):
    """A request with batches about whose numbers the broker has an error: their rows in the response are replaced."""

    call: KeptCall
    response: ProduceResponse
    principal: str


def restamp(call: KeptCall, part: KeptPart, producer_id: int) -> memoryview:
    """Writes a producer id into a batch, which keeps its epoch and sequence."""
    data = memoryview(call.frame)[part.start : part.end]
    stamp(data, producer_id, part.batch.epoch, part.batch.sequence)
    return data


def rest_of(call: KeptCall, part: KeptPart, producer_id: int, first: int, max_bytes: int) -> memoryview:
    """Builds a batch of what follows the first records of a batch, under a producer id; each keeps its sequence.

    RemoteProtocolError: the records cannot be read, or take more than ``max_bytes``.
    """
    data, batch = memoryview(call.frame)[part.start : part.end], part.batch
    header = read_header(data)
    records = list(iter_raw_records(header, data, max_bytes))[first:]
    return memoryview(
        build_batch(
            [record._replace(offset=at) for at, record in enumerate(records)],
            codec=header.attributes & CODEC_MASK,
            producer_id=producer_id,
            producer_epoch=batch.epoch,
            base_sequence=advance(batch.sequence, first),
        )
    )


def replace_rows(response: ProduceResponse, version: int, told: Mapping[TrackKey, Told]) -> None:
    """Puts into a response what became of some of its partitions."""
    for topic in response.responses:
        ref = topic.topic_id if version >= FIRST_TOPIC_ID else topic.name.encode()
        for row in topic.partition_responses:
            new = told.get((ref, row.index))
            if new is not None:
                row.error_code, row.base_offset, row.log_append_time_ms = new[:3]
                row.error_message = None
