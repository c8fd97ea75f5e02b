"""The path from a client's request about a transaction to its answer (Kafka's ``TransactionCoordinator``).

An id's transactions are decided on kproxy's own log, unless a rule of ``transactions.home`` says that the broker does.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, TypeVar

from kproxy.codec._generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kproxy.codec._generated.add_partitions_to_txn import AddPartitionsToTxnRequest
from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec._generated.txn_offset_commit import TxnOffsetCommitRequest
from kproxy.codec._generated.write_txn_markers import WriteTxnMarkersRequest
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config.transaction_options import TransactionOptions
from kproxy.dedup.retry_rules import is_among
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.txn.broker.broker_owners import BrokerOwners
from kproxy.net.txn.id_admission import IdAdmission
from kproxy.net.txn.jobs import Jobs
from kproxy.net.txn.topic_names import topic_names
from kproxy.proxy.coordinator_requests import AbortRequest, TransactionRequest
from kproxy.proxy.coordinator_rules import home_of
from kproxy.proxy.handlers.transaction_admin import marked
from kproxy.proxy.transaction_messages import (
    NO_PRODUCER,
    failed,
    offsets_committed,
    offsets_of,
    partitions_added,
    places_of,
)
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import ALONE, DecisionScope
from kproxy.txn.procedures.log_owners import LogOwners
from kproxy.txn.procedures.owner_policy import CLIENT, OwnerPolicy
from kproxy.txn.requests import ClientBatch, TxnRequest, Written
from kproxy.txn.txn_error import TxnError

if TYPE_CHECKING:
    from kproxy.txn.procedures.owner import Owner
    from kproxy.txn.procedures.owners import Owners

T = TypeVar("T")

#: From these versions on a client speaks the second version of the protocol (KIP-890, transaction.version 2): groups
#: join a transaction by their offsets, and each EndTxn raises the epoch.
_OFFSETS_V2: Final = 5
_END_V2: Final = 5
#: Transactional ids of which the home is kept, and their characters: a client chooses how long its id is.
_MOST_KNOWN: Final = 64
_LONGEST_KNOWN: Final = 256


class Coordinator:
    """Has the owner of an id do what is asked, as a job that outlives the client's connection.

    All but ``answer`` and ``answer_abort`` raise TxnError with the error for the client.
    """

    def __init__(
        self, log: LogOwners, brokers: BrokerOwners, config: TransactionOptions, jobs: Jobs, cluster: Cluster
    ) -> None:
        """``cluster`` knows the names of topics that clients name by their ids."""
        #: Of the ids that kproxy's log decides; and of members, also where the broker decides the rest of an id.
        self.log = log
        #: Of the ids that the broker decides.
        self.brokers = brokers
        self._config = config
        #: Asked for each request: to compare the patterns costs more than to know the last answers.
        self._known_home = lru_cache(maxsize=_MOST_KNOWN)(partial(_is_at_broker, config))
        #: The owners where the transactions of an id are decided.
        self._owners: Callable[[str], Owners] = self.by_home(log, brokers)
        self._jobs = jobs
        self._cluster = cluster
        self.admission = IdAdmission(config.transactional_id_limit, lambda name: self._owners(name).exists(name))

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
        if len(transactional_id) > _LONGEST_KNOWN:
            return _is_at_broker(self._config, transactional_id)
        return self._known_home(transactional_id)

    def by_home(self, log: T, broker: T) -> Callable[[str], T]:
        """The choice between two things: for ids that kproxy's log decides, and for those that the broker decides."""
        return lambda transactional_id: broker if self.is_at_broker(transactional_id) else log

    def offsets_wait(self, transactional_id: str) -> bool:
        """Whether a group's offsets wait for a transaction of an id that may be open (``Owners.offsets_wait``)."""
        return self._owners(transactional_id).offsets_wait

    async def _owner(self, request: TxnRequest) -> "Owner":
        owners = self._owners(request.transactional_id)
        known = owners.owner_now(request)
        return known if known is not None else await self._jobs.run(lambda: owners.owner(request))

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
                producer = await self.init_producer_id(who.transactional_id, timeout_ms, client, who.client_id)
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

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        client: Producer | None,
        client_id: str,
        policy: OwnerPolicy = CLIENT,
    ) -> Producer:
        """The client's producer id and epoch; a producer that had the id is fenced, and what was open is aborted.

        ``client``: the identity that it has (KIP-360). ``policy``: for which kind of client the broker is asked.
        """
        if not transactional_id:
            raise TxnError(ErrorCode.INVALID_REQUEST, "an empty transactional id")
        owners = self._owners(transactional_id)
        resumed = client or NOBODY
        return await self._jobs.run(lambda: owners.initialize(transactional_id, timeout_ms, resumed, client_id, policy))

    async def initialize_at_log(self, transactional_id: str, timeout_ms: int, client_id: str) -> Producer:
        """Initializes an id at kproxy's log, as ``init_producer_id``: also members of an id that the broker decides."""
        return await self._jobs.run(lambda: self.log.initialize(transactional_id, timeout_ms, NOBODY, client_id))

    async def add_partitions(
        self, request: TxnRequest, places: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Errors by partition; if there are any, none was added."""
        errors = await self._owners(request.transactional_id).refusals(places)
        if not errors:
            owner = await self._owner(request)
            await self._jobs.run(lambda: owner.join(request, places))
        return errors

    async def add_offsets(self, request: TxnRequest, group_id: str) -> None:
        """Adds the group to the transaction: its offsets may follow."""
        _refuse_nameless(group_id)
        owner = await self._owner(request)
        await self._jobs.run(lambda: owner.add_offsets(request, group_id))

    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets, *, implicit: bool) -> None:
        """The offsets hold once the transaction is committed. ``implicit``: the group joins by them (KIP-890)."""
        _refuse_nameless(offsets.group_id)
        owner = await self._owner(request)
        await self._jobs.run(lambda: owner.commit_offsets(request, offsets, implicit=implicit))

    async def produce(
        self,
        request: TxnRequest,
        batches: Sequence[ClientBatch],
        *,
        implicit: bool,
        accepted: Callable[[], None],
        is_job: bool = False,
    ) -> Sequence[Written]:
        """Writes batches; the result of each. ``accepted`` is called once the next request may begin.

        ``is_job``: the caller is done whether or not its client waits.
        """
        owner = await self._owner(request)
        begin = self._jobs.within if is_job else self._jobs.run
        return await begin(lambda: owner.produce(request, batches, implicit=implicit, accepted=accepted))

    def takes_at_once(self, transactional_id: str, batches: Sequence[ClientBatch]) -> bool:
        """Whether nothing has to be waited for before batches have their place in the order."""
        owner = self._known(transactional_id)
        return owner is not None and owner.takes_at_once(batches)

    def produce_at_once(
        self,
        request: TxnRequest,
        batches: Sequence[ClientBatch],
        written: Callable[[Sequence[Written]], None],
        *,
        implicit: bool,
    ) -> None:
        """Writes batches by the owner, which ``takes_at_once`` (``Owner.produce_at_once``)."""
        owner = self._known(request.transactional_id)
        assert owner is not None
        self._jobs.do(lambda: owner.produce_at_once(request, batches, written, implicit=implicit))

    def _known(self, transactional_id: str) -> "Owner | None":
        return self._owners(transactional_id).known(transactional_id)

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool, also: DecisionScope = ALONE) -> Producer:
        """The client's producer id and epoch for what follows."""
        try:
            owner = await self._owner(request)
        except TxnError:
            told = self._owners(request.transactional_id).answer_expired(request, committed=committed)
            if told is None:
                raise
            return told
        return await self._jobs.run(lambda: owner.end(request, committed=committed, bumps=bumps, also=also))

    async def decide(
        self, transactional_id: str, client: Producer | None, *, committed: bool, also: DecisionScope
    ) -> None:
        """Decides parts that were prepared, whichever instance owns the id, as ``LogOwner.decide``."""
        await self._jobs.run(lambda: self.log.decide(transactional_id, client, committed=committed, also=also))

    async def abort(self, transactional_id: str, client: Producer) -> None:
        """Aborts a client's open transaction by a claim, whichever instance coordinates it; TxnError if it can't."""
        await self._jobs.run(lambda: self.log.abort(transactional_id, client))

    async def prepare(self, request: TxnRequest, batch_id: str | None = None) -> None:
        """The transaction waits for a later decision, for as long as it takes."""
        owner = await self._owner(request)
        await self._jobs.run(lambda: owner.prepare(request, batch_id))

    def start(self, work: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        return self._jobs.start(work)


def _is_at_broker(config: TransactionOptions, transactional_id: str) -> bool:
    return home_of(config.transactions_home, transactional_id).is_broker


def _refuse_nameless(group_id: str) -> None:
    if not group_id:
        raise TxnError(ErrorCode.INVALID_GROUP_ID, "an empty group id")
