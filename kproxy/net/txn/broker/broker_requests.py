"""KIP-98's requests to the broker's coordinator of a transactional id, each asked until its response is definite.

With ``transaction.version`` 2 (KIP-890) partitions and groups join a transaction by being written, and each end raises
the epoch. A broker without it is asked in the versions of a client that adds them, and keeps the epoch at an end.
"""

from collections.abc import Collection
from contextlib import suppress
from math import inf
from typing import Any, Final, TypeVar

import trio

from kproxy import __version__
from kproxy.codec._generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kproxy.codec._generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestAddPartitionsToTxnTopic,
    AddPartitionsToTxnResponse,
)
from kproxy.codec._generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproxy.codec._generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from kproxy.codec._generated.describe_transactions import (
    DescribeTransactionsResponseTransactionState as Told,
)
from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec._generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.codec.topic_partition import TopicPartition
from kproxy.codec.version_choice import NoCommonVersion
from kproxy.dedup.producer_ids import is_reserved_producer_id
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.coordinators import GROUP, TRANSACTION, errors_in
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.broker_protocol import SECOND, SECOND_LEVEL, Protocol, granted, leaves_open
from kproxy.txn.txn_error import TxnError

T = TypeVar("T", bound=Message)


_INIT: Final = 5
#: From this version on a producer may name the identity that it has (KIP-360).
_RESUMES: Final = 3
#: Several transactions in one request are for brokers among themselves from v4 on.
_ADD: Final = 3
_ADD_OFFSETS: Final = 3
_DESCRIBE: Final = 0
_FEATURES: Final = (3, 4)
#: Brokers tell nothing to software without a version (KIP-511).
_WHO_ASKS: Final = ApiVersionsRequest(client_software_name="kproxy", client_software_version=__version__)
_FEATURE: Final = "transaction.version"
#: The most that is waited for what can be done without.
_AHEAD_SECONDS: Final = 2.0


class BrokerRequests:
    """The requests of one transactional id to the brokers."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        patience_s: float,
        connections: WriterConnections | None = None,
    ) -> None:
        """``patience_s``: how long to wait for a definite answer. ``connections``: closed by ``close``.

        A broker answers the requests of a connection one by one, and waits with most of these for its replicas. Over
        the connections of ``cluster``, which are shared, an id would wait for all others.
        """
        self._cluster = cluster
        self._name = transactional_id
        self._patience_s = patience_s
        self._connections = connections
        self._connect = None if connections is None else connections.connect

    @property
    def is_connected(self) -> bool:
        """Whether it has connections to coordinators."""
        return self._connections is not None and self._connections.is_open

    def disconnect(self) -> None:
        """Closes its connections on which nothing is in flight (``WriterConnections.rest``)."""
        if self._connections is not None:
            self._connections.rest()

    def close(self) -> None:
        """Closes its connections."""
        if self._connections is not None:
            self._connections.close()

    async def protocol(self, *, refresh: bool = False) -> Protocol:
        """The transaction protocol that the cluster has agreed on (KIP-584). TxnError (COORDINATOR_NOT_AVAILABLE).

        The second protocol is remembered while the coordinator is connected, unless it is ``refresh``: levels may be
        lowered. The first is asked for each time.
        """
        known: dict[str, int] = {}
        with suppress(OSError, RemoteProtocolError):
            known = (await self._cluster.coordinators.broker(self._name, TRANSACTION))[0].features
        if known.get(_FEATURE, 0) >= SECOND_LEVEL and not refresh:
            return SECOND
        try:
            answer = await self._cluster.ask_any(_WHO_ASKS, ApiVersionsResponse, _FEATURES)
        except (OSError, RemoteProtocolError) as error:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        if answer.error_code:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"ApiVersions: error {answer.error_code}")
        levels = {row.name: row.max_version_level for row in answer.finalized_features}
        return Protocol.of(levels.get(_FEATURE, 0))

    async def init(self, timeout_ms: int, resumed: Producer = NOBODY, *, repeats: bool = True) -> Producer:
        """A new epoch: the former owner of the id is fenced, and an open transaction is aborted. TxnError.

        ``repeats``: False if a request without a response, which may still arrive, must not be sent again:
        COORDINATOR_NOT_AVAILABLE then.

        ``resumed``: the identity that must own the id (KIP-360, ``granted``). Unless it is NOBODY, an open transaction
        has to be ended before.
        """
        request = InitProducerIdRequest(self._name, timeout_ms, *resumed)
        answer = await self._ask(request, InitProducerIdResponse, newest=_INIT, trim=_refuse_old, repeats=repeats)
        given = Producer(answer.producer_id, answer.producer_epoch)
        return granted(self._name, resumed, given, is_reserved=is_reserved_producer_id(given.producer_id))

    async def add_ahead(self, producer: Producer, places: Collection[TopicPartition]) -> None:
        """Adds partitions in the second protocol before they are written. The writes would add them, too, but more
        slowly.

        There each leader adds its own partitions. The coordinator makes one change at a time, and none while it
        completes the last transaction. It answers all others CONCURRENT_TRANSACTIONS, and they retry after 20 ms
        (Kafka's ``add.partitions.to.txn.retry.backoff.ms``). If this fails, the leaders' responses will say why.
        """
        with suppress(TxnError), trio.move_on_after(_AHEAD_SECONDS):
            await self.add_partitions(producer, places)

    async def add_partitions(self, producer: Producer, places: Collection[TopicPartition]) -> None:
        """Adds partitions before they are written, in the first protocol. TxnError."""
        topics: dict[str, AddPartitionsToTxnRequestAddPartitionsToTxnTopic] = {}
        for name, index in places:
            topics.setdefault(name, AddPartitionsToTxnRequestAddPartitionsToTxnTopic(name)).partitions.append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=list(topics.values()),
        )
        await self._ask(request, AddPartitionsToTxnResponse, newest=_ADD)

    async def commit_offsets(self, producer: Producer, protocol: Protocol, offsets: TransactionOffsets) -> None:
        """The group's coordinator checks member and generation. TxnError with its error."""
        group_id = offsets.group_id
        if protocol.adds:
            add = AddOffsetsToTxnRequest(self._name, *producer, group_id)
            await self._ask(add, AddOffsetsToTxnResponse, newest=_ADD_OFFSETS)
        topics = [
            TxnOffsetCommitRequestTopic(
                topic.name,
                partitions=[
                    TxnOffsetCommitRequestPartition(row.index, row.offset, row.leader_epoch, row.metadata)
                    for row in topic.partitions
                ],
            )
            for topic in offsets.topics
        ]
        request = TxnOffsetCommitRequest(
            self._name,
            group_id,
            *producer,
            generation_id_or_member_epoch=offsets.generation_id,
            member_id=offsets.member_id,
            group_instance_id=offsets.group_instance_id,
            topics=topics,
        )
        newest = protocol.commit_offsets
        await self._ask(request, TxnOffsetCommitResponse, newest=newest, group=group_id, trim=_trim)

    async def describes(self) -> bool:
        """Whether its coordinator serves ``describe``. TxnError (COORDINATOR_NOT_AVAILABLE)."""
        try:
            served = (await self._cluster.coordinators.broker(self._name, TRANSACTION))[1]
        except (OSError, RemoteProtocolError) as error:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        return ApiKey.DESCRIBE_TRANSACTIONS in served

    async def describe(self) -> Told | None:
        """The coordinator's description of it (KIP-664, Kafka 3.0 and later); None if it knows nothing. TxnError."""
        request = DescribeTransactionsRequest([self._name])
        try:
            answer = await self._ask(request, DescribeTransactionsResponse, newest=_DESCRIBE)
        except TxnError as error:
            if error.error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return None
            raise
        return answer.transaction_states[0]

    async def end(self, producer: Producer, protocol: Protocol, *, committed: bool) -> Producer | None:
        """Decides; the producer of the next transaction, or None: the former one, which needs a new epoch.

        TxnError, COORDINATOR_NOT_AVAILABLE if the outcome is open (``leaves_open``).
        """
        request = EndTxnRequest(self._name, *producer, committed)
        is_open = False

        def left_open() -> None:
            nonlocal is_open
            is_open = committed

        try:
            answer = await self._ask(request, EndTxnResponse, newest=protocol.end, left_open=left_open)
        except TxnError as error:
            if not leaves_open(error.error_code, was_commit_open=is_open):
                raise
            why = f"another producer has {self._name}, and the commit may have been decided before"
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, why) from error
        if answer.producer_id < 0:  # before v5 none is named
            return None
        return Producer(answer.producer_id, answer.producer_epoch)

    async def _ask(
        self,
        request: Any,
        kind: type[T],
        *,
        newest: int,
        group: str | None = None,
        **more: Any,
    ) -> T:
        """The answer without an error; TxnError with the error, COORDINATOR_NOT_AVAILABLE if there is none in time.

        ``more`` as of ``Coordinators.ask``.
        """
        key, key_type = (self._name, TRANSACTION) if group is None else (group, GROUP)
        with trio.move_on_after(self._patience_s), suppress(OSError, NoCommonVersion):
            answer = await self._cluster.coordinators.ask(
                key,
                request,
                kind,
                (0, newest),
                key_type=key_type,
                patience_s=inf,
                connect=self._connect,
                **more,
            )
            _check(next(iter(errors_in(answer)), 0), self._name)
            return answer
        raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"nobody answers for {self._name}: the outcome is open")


def _check(error: int, name: str) -> None:
    if error:
        try:
            code = ErrorCode(error)
        except ValueError:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        raise TxnError(code, f"the broker answers {code.name} for {name}")


def _refuse_old(request: InitProducerIdRequest, version: int) -> None:
    """A broker that can't check the caller's identity would give the id to anybody."""
    if version < _RESUMES and request.producer_id >= 0:
        raise TxnError(
            ErrorCode.UNSUPPORTED_VERSION, "a producer can keep its producer id only with Kafka 2.5 or later"
        )


def _trim(request: TxnOffsetCommitRequest, version: int) -> None:
    """Members came with v3 (KIP-447)."""
    if version < 3:
        request.generation_id_or_member_epoch, request.member_id, request.group_instance_id = -1, "", None
