"""The coordinator of every transactional id whose client comes to this instance (Kafka's ``TransactionCoordinator``).

An id's transactions are decided on kproxy's own log, unless a rule of ``transactions.home`` says that the broker does.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog
import trio

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config.transaction_options import TransactionOptions
from kproxy.dedup.retry_rules import is_among
from kproxy.net.txn.broker.broker_owners import BrokerOwners
from kproxy.net.txn.jobs import Jobs
from kproxy.proxy.coordinator_rules import home_of
from kproxy.proxy.routing import is_own_topic
from kproxy.txn.claims import NOBODY
from kproxy.txn.id_limit import IdLimit
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import ALONE, DecisionScope
from kproxy.txn.procedures.log_owners import LogOwners
from kproxy.txn.procedures.owner_policy import CLIENT, Policy
from kproxy.txn.requests import ClientBatch, TxnRequest, Written
from kproxy.txn.txn_error import TxnError

if TYPE_CHECKING:
    from kproxy.txn.procedures.owner import Owner

log = structlog.get_logger("kproxy.transactions")

T = TypeVar("T")

#: How often ids that have expired are searched.
_SWEEP_SECONDS: Final = 60.0
#: Transactional ids of which the home is kept, and their characters: a client chooses how long its id is.
_MOST_KNOWN: Final = 64
_LONGEST_KNOWN: Final = 256


class Coordinator:
    """Hands each request on to the owner of its id, and sees to it that the client need not wait for its outcome.

    All raise TxnError with the error for the client.
    """

    def __init__(self, log: LogOwners, brokers: BrokerOwners, config: TransactionOptions, jobs: Jobs) -> None:
        """What clients ask for is done by ``jobs``, so that it outlives their connections."""
        #: Of the ids that kproxy's log decides; and of members, also where the broker decides the rest of an id.
        self.log = log
        #: Of the ids that the broker decides.
        self.brokers = brokers
        self._config = config
        #: Asked for each request: to compare the patterns costs more than to know the last answers.
        self._known_home = lru_cache(maxsize=_MOST_KNOWN)(partial(_is_at_broker, config))
        self._jobs = jobs
        self._limit = IdLimit(config.transactional_id_limit)

    async def run(self) -> None:
        """Forgets who had the ids that have expired; for ever."""
        while True:
            await trio.sleep(_SWEEP_SECONDS)
            self._limit.sweep(self._exists, trio.current_time())

    def _exists(self, transactional_id: str) -> bool:
        if self.is_at_broker(transactional_id):
            return transactional_id in self.brokers
        return self.log.exists(transactional_id)

    def admit_id(self, transactional_id: str, principal: str) -> None:
        """Lets a principal have an id. TxnError (POLICY_VIOLATION) if it has as many as it may have."""
        known = self._exists(transactional_id)
        if self._limit.admits(transactional_id, principal, trio.current_time(), is_known=known):
            return
        most = self._config.transactional_id_limit
        if self._limit.is_first_refusal(principal):
            log.warning(
                "a principal has as many transactional ids as it may have: further ones are refused until some expire "
                "(transactional.id.timeout.ms), or transactional.id.limit is raised",
                principal=principal,
                limit=most,
            )
        raise TxnError(ErrorCode.POLICY_VIOLATION, f"{principal} has {most} transactional ids")

    @property
    def instance_id(self) -> str:
        """Of this kproxy."""
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

    def leave(self) -> None:
        """From now on no producer gets an id here; open transactions may still end."""
        self.log.leaving = self.brokers.leaving = True

    def parties(self) -> Collection[int]:
        """The connections of the transactions that are open."""
        return {connection for owner in (*self.log, *self.brokers) for connection in owner.parties()}

    @property
    def open(self) -> int:
        """Transactions that are open."""
        return sum(owner.is_open for owner in (*self.log, *self.brokers))

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, client: Producer | None, client_id: str, policy: Policy = CLIENT
    ) -> Producer:
        """The client's producer id and epoch; a producer that had the id is fenced, and what was open is aborted.

        ``client``: the identity that it has (KIP-360). ``policy``: for which kind of client the broker is asked.
        """
        if not transactional_id:
            raise TxnError(ErrorCode.INVALID_REQUEST, "an empty transactional id")
        resumed = client or NOBODY
        if not self.is_at_broker(transactional_id):
            return await self.initialize_at_log(transactional_id, timeout_ms, resumed, client_id)
        if resumed != NOBODY and policy.resumes:
            await self._continue(transactional_id, resumed)
        owner = await self.brokers.take(transactional_id, policy)
        return await self._jobs.run(lambda: owner.initialize(timeout_ms, resumed))

    async def initialize_at_log(
        self, transactional_id: str, timeout_ms: int, resumed: Producer, client_id: str
    ) -> Producer:
        """As ``init_producer_id``, for what kproxy's log decides: also for the members of an id of the broker's."""
        return await self._jobs.run(lambda: self.log.initialize(transactional_id, timeout_ms, resumed, client_id))

    async def _continue(self, transactional_id: str, client: Producer) -> None:
        """Continues for a client that had its identity before kproxy was restarted, if that is known. TxnError."""
        try:
            await self._jobs.run(lambda: self.brokers.of(transactional_id, client))
        except TxnError as error:
            if error.error_code is not ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                raise

    async def _owner(self, request: TxnRequest) -> "Owner":
        name = request.transactional_id
        if not self.is_at_broker(name):
            at_log = self.log.owner_now(request)
            return at_log if at_log is not None else await self._jobs.run(lambda: self.log.owner(request))
        known = self.brokers.known(name)
        if known is not None and not known.is_unknown:
            return known
        return await self._jobs.run(lambda: self.brokers.of(name, request.client))

    async def add_partitions(
        self, request: TxnRequest, places: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Errors by partition; if there are any, none was added."""
        errors: Mapping[TopicPartition, ErrorCode]
        if self.is_at_broker(request.transactional_id):
            errors = {place: ErrorCode.TOPIC_AUTHORIZATION_FAILED for place in places if is_own_topic(place[0])}
        else:
            errors = await self.log.topics.errors(places)
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
        """What became of each batch. ``accepted`` is called once the next request may begin.

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
        """As ``Owner.produce_at_once``, of the owner that ``takes_at_once``."""
        owner = self._known(request.transactional_id)
        assert owner is not None
        self._jobs.do(lambda: owner.produce_at_once(request, batches, written, implicit=implicit))

    def _known(self, transactional_id: str) -> "Owner | None":
        owners = self.brokers if self.is_at_broker(transactional_id) else self.log
        return owners.known(transactional_id)

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool, also: DecisionScope = ALONE) -> Producer:
        """The client's producer id and epoch for what follows."""
        try:
            owner = await self._owner(request)
        except TxnError:
            is_at_log = not self.is_at_broker(request.transactional_id)
            told = self.log.answer_expired(request, committed=committed) if is_at_log else None
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

    async def prepare(self, request: TxnRequest) -> None:
        """The transaction waits for a later decision, for as long as it takes."""
        owner = await self._owner(request)
        await self._jobs.run(lambda: owner.prepare(request))

    def start(self, work: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        return self._jobs.start(work)


def _is_at_broker(config: TransactionOptions, transactional_id: str) -> bool:
    return home_of(config.transactions_home, transactional_id).is_broker


def _refuse_nameless(group_id: str) -> None:
    if not group_id:
        raise TxnError(ErrorCode.INVALID_GROUP_ID, "an empty group id")
