"""The path from a client's request about a transaction to its answer (Kafka's ``TransactionCoordinator``).

An id's transactions are decided on kproxy's own log, unless a rule of ``transactions.home`` says that the broker does.
"""

from collections.abc import Callable, Collection
from functools import lru_cache, partial
from typing import Final, TypeVar

import structlog

from kproxy.codec._generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kproxy.codec._generated.add_partitions_to_txn import AddPartitionsToTxnRequest
from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec._generated.txn_offset_commit import TxnOffsetCommitRequest
from kproxy.codec._generated.write_txn_markers import WriteTxnMarkersRequest
from kproxy.codec.messages import ErrorCode, Message
from kproxy.config.transaction_options import TransactionOptions
from kproxy.dedup.retry_rules import is_among
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.producer_identity import SEVERAL_ADDRESSES
from kproxy.net.txn.id_admission import IdAdmission
from kproxy.net.txn.jobs import Jobs
from kproxy.net.txn.topic_names import topic_names
from kproxy.proxy.coordinator_requests import AbortRequest, TransactionRequest
from kproxy.proxy.coordinator_rules import Home, home_of
from kproxy.proxy.handlers.transaction_admin import marked
from kproxy.proxy.transaction_messages import (
    NO_PRODUCER,
    failed,
    offsets_committed,
    offsets_of,
    partitions_added,
    places_of,
)
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.procedures.broker_owners import BrokerOwners
from kproxy.txn.procedures.log_owners import LogOwners
from kproxy.txn.procedures.owner_requests import OwnerRequests
from kproxy.txn.requests import TxnRequest
from kproxy.txn.txn_error import TxnError

T = TypeVar("T")
_log = structlog.get_logger("kproxy.transactions")

#: From these versions on a client speaks the second version of the protocol (KIP-890, transaction.version 2): groups
#: join a transaction by their offsets, and each EndTxn raises the epoch.
_OFFSETS_V2: Final = 5
_END_V2: Final = 5
#: Transactional ids of which the home is kept, and their characters: a client chooses how long its id is.
_MOST_KNOWN: Final = 64
_LONGEST_KNOWN: Final = 256


class Coordinator(OwnerRequests):
    """Has the owner of an id do what is asked, as a job that outlives the client's connection.

    All but ``answer`` and ``answer_abort`` raise TxnError with the error for the client.
    """

    def __init__(
        self,
        log: LogOwners,
        brokers: BrokerOwners,
        config: TransactionOptions,
        jobs: Jobs,
        cluster: Cluster,
        stats: TransactionStats,
    ) -> None:
        """``cluster`` knows the names of topics that clients name by their ids."""
        #: Of the ids that kproxy's log decides; and of members, also where the broker decides the rest of an id.
        self.log = log
        #: Of the ids that the broker decides.
        self.brokers = brokers
        self._config = config
        self._stats = stats
        #: Asked for each request: to compare the patterns costs more than to know the last answers.
        self._known_home = lru_cache(maxsize=_MOST_KNOWN)(partial(home_of, config.transactions_home))
        super().__init__(self.by_home(log, brokers), jobs, self._refused)
        self._cluster = cluster
        self.admission = IdAdmission(config.transactional_id_limit, lambda name: self._owners(name).exists(name))

    def _refused(self, request: TxnRequest) -> None:
        """Counts and logs a request with an identity that was given to another client."""
        self._stats.foreign += 1
        assert request.holder is not None
        _log.warning(
            "a request was refused: the producer id of its transactional id was given to another client",
            transactional_id=request.transactional_id,
            client_id=request.client_id,
            principal=request.holder.principal,
            host=request.holder.host,
            advice=f"{SEVERAL_ADDRESSES}; else find the program",
        )

    # -- who decides

    @property
    def instance_id(self) -> str:
        """The instance.id of this kproxy."""
        return self._config.instance_id

    def renews_timestamps(self, client_id: str) -> bool:
        """Whether a client gives a record a new timestamp when it sends it again."""
        return is_among(client_id, self._config.clients_new_timestamps)

    @property
    def any_at_broker(self) -> bool:
        """Whether there may be an id whose transactions the broker decides by a rule."""
        return any(rule.home.is_broker for rule in self._config.transactions_home)

    def is_at_broker(self, transactional_id: str) -> bool:
        """Whether the broker decides. What a former kproxy left open there stays open until its time-out."""
        return self._home(transactional_id).is_broker

    def is_at_broker_by_rule(self, transactional_id: str) -> bool | None:
        """Whether the broker decides by a rule of ``transactions.home``; None where that is ``auto``."""
        home = self._home(transactional_id)
        return None if home is Home.AUTO else home.is_broker

    def _home(self, transactional_id: str) -> Home:
        if len(transactional_id) > _LONGEST_KNOWN:
            return home_of(self._config.transactions_home, transactional_id)
        return self._known_home(transactional_id)

    def by_home(self, log: T, broker: T) -> Callable[[str], T]:
        """The choice between two things: for ids that kproxy's log decides, and for those that the broker decides."""
        return lambda transactional_id: broker if self.is_at_broker(transactional_id) else log

    def leave(self) -> None:
        """Gives no producer an id from now on; open transactions may still end."""
        self.log.leaving = self.brokers.leaving = True

    def parties(self) -> Collection[int]:
        """The connections of the transactions that are open."""
        return {connection for owner in (*self.log, *self.brokers) for connection in owner.parties()}

    @property
    def open(self) -> int:
        """Transactions that are open."""
        return sum(owner.is_open for owner in (*self.log, *self.brokers))

    # -- clients' requests

    async def answer(self, ask: TransactionRequest, version: int) -> Message | None:
        """The response to a request of this version; None if its connection has to end, being older than its client's.

        A Produce request is answered by ``ProduceAnswers``.
        """
        try:
            return await self._answer(ask.who, ask.request, version, ask.principal)
        except TxnError as error:
            if error.error_code == ErrorCode.NETWORK_EXCEPTION:
                return None
            return failed(ask.request, version, error.error_code)

    async def _answer(self, who: TxnRequest, request: Message, version: int, principal: str) -> Message:
        match request:
            case InitProducerIdRequest():
                self.admission.admit(who.transactional_id, principal)
                client = None if who.client == NO_PRODUCER else who.client
                timeout_ms = request.transaction_timeout_ms
                producer = await self.init_producer_id(
                    who.transactional_id, timeout_ms, client, who.client_id, holder=who.holder
                )
                return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)
            case AddPartitionsToTxnRequest():
                return partitions_added(request, version, await self.add_partitions(who, places_of(request)))
            case AddOffsetsToTxnRequest():
                await self.add_offsets(who, request.group_id)
                return AddOffsetsToTxnResponse()
            case TxnOffsetCommitRequest():
                return await self._answer_offsets(who, request, version)
            case EndTxnRequest():
                producer = await self.end(who, committed=request.committed, bumps=version >= _END_V2)
                return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)
        raise TypeError(f"{type(request).__name__} is not about a transaction")

    async def _answer_offsets(self, who: TxnRequest, request: TxnOffsetCommitRequest, version: int) -> Message:
        """Topics whose ids no broker knows are refused; the offsets of the others are committed (``KafkaApis``)."""
        ids = {topic.topic_id for topic in request.topics if not topic.name}
        names = await topic_names(self._cluster, ids)
        offsets = offsets_of(request, names)
        if offsets.topics or not ids:
            await self.commit_offsets(who, offsets, implicit=version >= _OFFSETS_V2)
        return offsets_committed(request, version, ErrorCode.NONE, unknown=ids - names.keys())

    async def answer_abort(self, ask: AbortRequest) -> Message:
        """The response to an operator's marker (``kafka-transactions.sh abort``)."""
        assert isinstance(ask.request, WriteTxnMarkersRequest)
        try:
            await self.abort(ask.transactional_id, ask.client)
        except TxnError as error:
            return marked(ask.request, error.error_code)
        return marked(ask.request, ErrorCode.NONE)

    # -- what owners do

    async def initialize_at_log(self, transactional_id: str, timeout_ms: int, client_id: str) -> Producer:
        """Initializes an id at kproxy's log, as ``init_producer_id``: also members of an id that the broker decides."""
        return await self._jobs.run(lambda: self.log.initialize(transactional_id, timeout_ms, NOBODY, client_id))

    async def decide(
        self, transactional_id: str, client: Producer | None, *, committed: bool, also: DecisionScope
    ) -> None:
        """Decides parts that were prepared, whichever instance owns the id, as ``LogOwner.decide``."""
        await self._jobs.run(lambda: self.log.decide(transactional_id, client, committed=committed, also=also))

    async def abort(self, transactional_id: str, client: Producer) -> None:
        """Aborts a client's open transaction by a claim, whichever instance coordinates it; TxnError if it can't."""
        await self._jobs.run(lambda: self.log.abort(transactional_id, client))
