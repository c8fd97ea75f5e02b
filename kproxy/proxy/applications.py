"""Applications that consume, transform and produce, and whose OffsetCommit is to be the end of a transaction."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Protocol

from kproxy.budget import RequestBudget
from kproxy.codec._generated.join_group import JoinGroupRequest
from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kproxy.codec._generated.offset_fetch import OffsetFetchRequest
from kproxy.codec._generated.transaction_offsets import (
    TransactionOffsets,
    TransactionOffsetsPartition,
    TransactionOffsetsTopic,
)
from kproxy.codec.header import decode_request_header
from kproxy.codec.messages import ApiKey, ErrorCode, Message, decode_request
from kproxy.codec.topic_names import is_legal_topic
from kproxy.proxy.coordinator_requests import ApplicationCommit

#: What an application's consumer asks that says where its transactions begin and end.
WATCHED = frozenset({ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.JOIN_GROUP, ApiKey.LEAVE_GROUP})
_COOPERATIVE = "cooperative"
_FIRST_GROUPS = 8
#: Errors that a consumer understands; any other becomes one after which it rejoins.
_TOLD = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED})


class CommitRule(NamedTuple):
    """A producer's client.id pattern, and the pattern of the group or of the client.id of the consumer beside it.

    Where neither is given the consumer has the producer's client.id.
    """

    producer: str
    group: str | None = None
    consumer: str | None = None


@dataclass(frozen=True, slots=True)
class CommitRules:
    """The names of applications by the rules of ``on.offset.commit``; of several that fit a client the first counts."""

    rules: Sequence[CommitRule]

    def __bool__(self) -> bool:
        """Whether there may be any application."""
        return bool(self.rules)

    def of_producer(self, client_id: str) -> str | None:
        """The name of the application to which a producer belongs."""
        for rule in self.rules:
            if fnmatchcase(client_id, rule.producer):
                return _name(rule, client_id)
        return None

    def of_consumer(self, client_id: str, group_id: str) -> str | None:
        """The name of the application to which a consumer belongs."""
        for rule in self.rules:
            if rule.group is not None:
                fits = fnmatchcase(group_id, rule.group)
            else:
                fits = fnmatchcase(client_id, rule.producer if rule.consumer is None else rule.consumer)
            if fits:
                return _name(rule, client_id)
        return None


def _name(rule: CommitRule, client_id: str) -> str:
    return client_id if rule.group is None and rule.consumer is None else rule.producer


class Application(Protocol):
    """One application: what its consumer does."""

    def joins(self, connection: int, *, rewinds: bool) -> None:
        """The consumer joins its group; ``rewinds``: it fetches its offsets after that, and begins there."""
        ...

    def leaves(self) -> None:
        """It leaves the group."""
        ...

    def fetches(self) -> None:
        """It asks for its offsets."""
        ...

    async def commit(self, connection: int, offsets: Callable[[], Awaitable[TransactionOffsets]]) -> None:
        """It commits offsets, and what was written until now with them. TxnError: none of it."""
        ...


class Applications(Protocol):
    """All that there are."""

    def of_consumer(self, client_id: str, group_id: str) -> Application | None:
        """The one to which a consumer belongs."""
        ...


def watch(
    applications: Applications, client_id: str, connection: int, frame: memoryview, budget: RequestBudget
) -> ApplicationCommit | None:
    """Tells an application what its consumer asks (a request without its length). A commit is its to decide.

    RemoteProtocolError if the request is malformed.
    """
    header = decode_request_header(frame)
    version = header.api_version
    request: Any
    request = decode_request(header.api_key, frame[header.size :], version, budget)
    for group_id in _groups(request, version):
        found = applications.of_consumer(client_id, group_id)
        if found is None:
            continue
        if isinstance(request, OffsetCommitRequest):
            return ApplicationCommit(found, connection, request)
        if isinstance(request, JoinGroupRequest):
            found.joins(connection, rewinds=not any(_COOPERATIVE in one.name for one in request.protocols))
        elif isinstance(request, OffsetFetchRequest):
            found.fetches()
        else:
            found.leaves()
    return None


def _groups(request: Any, version: int) -> list[str]:
    if isinstance(request, OffsetFetchRequest) and version >= _FIRST_GROUPS:
        return [group.group_id for group in request.groups]
    return [request.group_id]


def offsets_committed_by(request: OffsetCommitRequest, names: Mapping[bytes, str]) -> TransactionOffsets:
    """The offsets as the transaction log records them; ``names`` of topics that are named by ids (v10)."""
    topics = [
        TransactionOffsetsTopic(
            topic.name or names[topic.topic_id],
            [
                TransactionOffsetsPartition(
                    row.partition_index, row.committed_offset, row.committed_leader_epoch, row.committed_metadata
                )
                for row in topic.partitions
            ],
        )
        for topic in request.topics
        if (is_legal_topic(topic.name) if topic.name else topic.topic_id in names)
    ]
    return TransactionOffsets(
        group_id=request.group_id,
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=topics,
    )


def has_left(request: OffsetCommitRequest, error: ErrorCode) -> bool:
    """Whether the receiver of this error has no membership to give up, or keeps it (static members, KIP-345)."""
    return error in _TOLD or not request.member_id or request.group_instance_id is not None


def committed(request: OffsetCommitRequest, error: ErrorCode) -> Message:
    """The response, the same for all partitions; after any error the consumer has to begin at its committed offsets."""
    code = error if error in _TOLD or not error else ErrorCode.ILLEGAL_GENERATION
    topics = [
        OffsetCommitResponseTopic(
            topic.name,
            topic.topic_id,
            [OffsetCommitResponsePartition(row.partition_index, _code(topic, code)) for row in topic.partitions],
        )
        for topic in request.topics
    ]
    return OffsetCommitResponse(topics=topics)


def _code(topic: OffsetCommitRequestTopic, code: int) -> int:
    """The error for a topic of a request whose error is ``code``: there is none of a name that is illegal."""
    is_there = not topic.name or is_legal_topic(topic.name)
    return code if code or is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
