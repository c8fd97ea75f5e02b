"""Clients that read one partition through a session, each in its way, and a broker that has a mixed log."""

from dataclasses import dataclass, field
from typing import Any

from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchRequestFetchPartition,
    FetchRequestFetchTopic,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponseFetchableTopicResponse,
    FetchResponsePartitionData,
)
from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from kproxy.codec.batch import iter_records, read_header
from kproxy.proxy.handlers.base import Stable
from kproxy.txn.visibility import entries
from tests.proxy.playbook import Play
from tests.txn.mixed_logs import MixedLog

TOPIC_ID = b"t" * 16
FIRST_ID = 13


@dataclass
class Broker:
    """Answers what a session asks, and lets the time pass that it waits."""

    play: Play
    logs: list[MixedLog]
    #: Partitions and offsets of each Fetch, in order, and how long it may wait.
    asked: list[tuple[dict[int, int], int]] = field(default_factory=list)

    def serve(self) -> int:
        """Answers all that was asked; how many that were."""
        sent = self.play.upstream()
        for version, correlation_id, request in sent:
            if isinstance(request, MetadataRequest):
                topic = MetadataResponseTopic(name="t", topic_id=TOPIC_ID)
                self.play.reply(MetadataResponse(topics=[topic]), version, correlation_id)
            else:
                self.play.reply(self._fetched(request), version, correlation_id)
        return len(sent)

    def _fetched(self, request: FetchRequest) -> FetchResponse:
        (topic,) = request.topics
        self.asked.append(({row.partition: row.fetch_offset for row in topic.partitions}, request.max_wait_ms))
        rows = [self._row(row, request.isolation_level) for row in topic.partitions]
        if not any(row.records for row in rows):
            self.play.answered_at += request.max_wait_ms / 1000
        answer = FetchResponseFetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows)
        return FetchResponse(responses=[answer])

    def _row(self, asked: FetchRequestFetchPartition, isolation: int) -> FetchResponsePartitionData:
        log = self.logs[asked.partition]
        aborted = [FetchResponseAbortedTransaction(*each) for each in log.aborted_from(asked.fetch_offset)]
        return FetchResponsePartitionData(
            partition_index=asked.partition,
            high_watermark=log.end,
            last_stable_offset=log.native_lso,
            aborted_transactions=aborted if isolation else None,
            records=log.read(asked.fetch_offset, asked.partition_max_bytes, committed=bool(isolation)),
        )

    def pass_time(self) -> bool:
        """Lets the time come for which the session waits; False if it waits for nothing."""
        waiting = self.play.commands()
        for each in waiting:
            if isinstance(each.reason, Stable):
                self.tell_stable(each)
                continue
            self.play.answered_at = max(self.play.answered_at, each.reason.until)  # type: ignore[union-attr]
            self.resume(each)
        return bool(waiting)

    def tell_stable(self, waiting: Any) -> None:
        """Says up to where partitions are decided."""
        question = waiting.reason.question
        found: dict[tuple[str, int], int | None] = {
            place: min(end, self.logs[place[1]].stable) for place, end in {**question.hints, **question.ends}.items()
        }
        told = self.play.ctx.services.stable.found(question, found)
        assert self.play.session.resume(waiting, self.play.answered_at, told) is None

    def resume(self, waiting: Any) -> None:
        """Something may have been decided."""
        again = self.play.session.resume(waiting, self.play.answered_at)
        if again is not None:
            self.play.session.commands.append(again)


@dataclass
class Reader:
    """A consumer of some partitions of one topic."""

    play: Play
    broker: Broker
    version: int
    #: Whether it continues after the last record that it saw, instead of after the last batch.
    by_record: bool = False
    isolation: int = 1
    max_bytes: int = 600
    max_wait_ms: int = 500
    topic: str = "t"
    session_epoch: int = -1
    #: Whether it gets what the broker has, batches that compaction has emptied included.
    takes_empty: bool = False
    positions: dict[int, int] = field(default_factory=dict)
    got: dict[int, list[int]] = field(default_factory=dict)
    #: Offsets of the control batches that came.
    controls: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for index in range(len(self.broker.logs)):
            self.positions.setdefault(index, 0)
            self.got[index] = []

    def request(self) -> FetchRequest:
        rows = [
            FetchRequestFetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=self.max_bytes)
            for index, offset in self.positions.items()
        ]
        topic = FetchRequestFetchTopic(topic=self.topic, partitions=rows)
        if self.version >= FIRST_ID:
            topic.topic, topic.topic_id = "", TOPIC_ID
        return FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=self.isolation,
            session_epoch=self.session_epoch,
            topics=[topic],
        )

    def ask(self) -> None:
        """Sends one Fetch, now."""
        self.play.asked_at = self.play.answered_at
        self.play.ask(self.request(), self.version)

    def poll(self) -> FetchResponse:
        """One Fetch, as long as it takes."""
        self.ask()
        while not self.play.session.to_client:
            assert self.broker.serve() or self.broker.pass_time(), "nobody answers"
        return self.take(self.play.answer())

    def take(self, answer: FetchResponse) -> FetchResponse:
        """Delivers what a response holds."""
        for topic in answer.responses:
            for row in topic.partitions:
                assert not row.error_code
                aborted = [(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()]
                self._deliver(row.partition_index, bytes(row.records or b""), aborted if self.isolation else [])
        return answer

    def _deliver(self, index: int, data: bytes, aborted: list[tuple[int, int]]) -> None:
        position = self.positions[index]
        headers = [read_header(entry) for entry in entries(data) if entry[16] == 2]
        self.controls += [header.base_offset for header in headers if header.is_control]
        shown = b"".join(entry for entry in entries(data) if not self._is_aborted(entry, aborted))
        records = [r.offset for r in iter_records(shown, max_decompressed_bytes=1 << 20) if r.offset >= position]
        self.got[index] += records
        ends = [record + 1 for record in records]
        if not self.by_record:
            for entry in entries(data):
                if entry[16] == 2:
                    header = read_header(entry)
                    assert header.record_count or self.takes_empty, "an empty batch"
                    ends.append(header.base_offset + header.last_offset_delta + 1)
        self.positions[index] = max([position, *ends])

    @staticmethod
    def _is_aborted(entry: memoryview, aborted: list[tuple[int, int]]) -> bool:
        """As Kafka's consumers do: by the broker's list, until the marker of the abort."""
        if entry[16] != 2:
            return False
        header = read_header(entry)
        own = [each for each in aborted if each[0] == header.producer_id and each[1] <= header.base_offset]
        if own and header.is_control:
            aborted.remove(min(own))
        return bool(own) and header.is_transactional
