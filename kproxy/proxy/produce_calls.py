"""Calls: each is one Produce request of a client, its batches, and the messages that carry them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.header import encode_request
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import FIRST_TOPIC_ID, TopicRef
from kproxy.dedup.lanes import Send, TrackKey
from kproxy.dedup.matching import offset_of
from kproxy.dedup.unconfirmed import PendingProduce
from kproxy.proxy.slots import Slot


@dataclass(slots=True)
class PartitionCall:
    """One partition of a call: its batches, and the error if it was refused without being sent."""

    topic: TopicRef
    index: int
    sends: list[Send] = field(default_factory=list)
    error_code: int = 0
    #: Not all of its batches were sent yet, when its client had to be answered.
    unsent: bool = False
    #: The offsets of records that are in the log already, from an earlier time that the client sent them.
    matched: list[int] = field(default_factory=list)

    @property
    def key(self) -> TrackKey:
        """The partition, as tracks have it."""
        return self.topic, self.index

    @property
    def error(self) -> int:
        """The error to tell the client; REQUEST_TIMED_OUT while an outcome is open."""
        known = self.error_code or next((send.error_code for send in self.sends if send.settled and send.error_code), 0)
        return known or (ErrorCode.REQUEST_TIMED_OUT if self.is_open else 0)

    @property
    def is_open(self) -> bool:
        """Whether the outcome of a batch is not definite."""
        return self.unsent or not all(send.settled for send in self.sends)


@dataclass(slots=True, eq=False)
class UpstreamProduce:
    """One request to the broker: at most one batch for each partition."""

    call: "ProduceCall"
    batches: list[tuple[PartitionCall, memoryview, int]]
    #: The client's own frame, if it can be sent as it is once it is stamped.
    frame: bytearray | None = None
    sends: list[Send] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class ProduceCall:
    """One Produce request of a client."""

    slot: Slot
    version: int
    upstream_version: int
    timeout_ms: int
    client_id: str | None
    #: Use ``parts``. Those of a request that was forwarded unchanged are made if its response has to change.
    _parts: list[PartitionCall] = field(default_factory=list)
    #: What is noted of it for retries; None for acks=0, which has no response.
    owed: PendingProduce | None = None
    #: Batches whose outcome is open, or that are not sent yet.
    open: int = 0
    #: The broker's own response, if it is the client's to the byte.
    raw: memoryview | bytearray | None = None
    #: Its batches, if it was forwarded unchanged.
    whole: Sequence[Send] = ()

    @property
    def parts(self) -> list[PartitionCall]:
        """Its partitions, in the client's order."""
        if not self._parts and self.whole:
            self._parts = [PartitionCall(*send.key, [send]) for send in self.whole]
        return self._parts


def build_request(call: ProduceCall, sends: list[Send]) -> bytes:
    """A Produce request with these batches, acks=all."""
    topics: dict[TopicRef, ProduceRequestTopicProduceData] = {}
    for send in sends:
        ref, index = send.track.key
        topic = topics.get(ref)
        if topic is None:
            topic = topics[ref] = ProduceRequestTopicProduceData()
            if call.upstream_version >= FIRST_TOPIC_ID:
                topic.topic_id = ref
            else:
                topic.name = ref.decode("utf-8", "replace")
        topic.partition_data.append(ProduceRequestPartitionProduceData(index=index, records=send.batch))
    request = ProduceRequest(acks=-1, timeout_ms=call.timeout_ms, topic_data=list(topics.values()))
    return encode_request(request, call.upstream_version, call.slot.correlation_id, call.client_id)


def build_response(call: ProduceCall) -> ProduceResponse:
    """The client's response from the outcomes of a call's batches."""
    topics: dict[TopicRef, ProduceResponseTopicProduceResponse] = {}
    for part in call.parts:
        topic = topics.get(part.topic)
        if topic is None:
            topic = topics[part.topic] = ProduceResponseTopicProduceResponse()
            if call.version >= FIRST_TOPIC_ID:
                topic.topic_id = part.topic
            else:
                topic.name = part.topic.decode("utf-8", "replace")
        topic.partition_responses.append(_row(part, call.version))
    return ProduceResponse(responses=list(topics.values()))


def _row(part: PartitionCall, version: int) -> ProduceResponsePartitionProduceResponse:
    row = ProduceResponsePartitionProduceResponse(index=part.index, base_offset=-1)
    row.error_code = part.error
    if version < 4 and row.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
        row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if row.error_code:
        return row
    if part.matched:
        row.base_offset = offset_of(part.matched, whole=not part.sends)
    elif part.sends:
        row.base_offset = part.sends[0].base_offset
        if version >= 2:
            row.log_append_time_ms = part.sends[0].log_append_time_ms
    return row
