"""The owners of this instance of the transactional ids whose transactions the brokers decide."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.outside import Alone, Connections, Counters, Report, Time
from kproxy.txn.procedures.owner import disconnect_idle
from kproxy.txn.procedures.owner_policy import CLIENT
from kproxy.txn.requests import TxnRequest
from kproxy.txn.stored_epochs import continued
from kproxy.txn.txn_error import TxnError

if TYPE_CHECKING:
    from kproxy.txn.procedures.broker_owner import BrokerOwner
    from kproxy.txn.procedures.broker_protocol import BrokerCoordinator
    from kproxy.txn.procedures.kept_epoch import EpochLog
    from kproxy.txn.procedures.owner_policy import OwnerPolicy
    from kproxy.txn.stored_epochs import StoredEpoch

_SWEEP_SECONDS: Final = 60.0
#: And whenever there are so many more of them, what is idle is disconnected.
_OFTEN: Final = 50
#: Of what a former kproxy recorded; brokers remember ids for days.
_STORED_SWEEP_SECONDS: Final = 86_400.0
#: An owner that nobody has asked for so long is packed.
_PACKED_AFTER_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class BrokerTools:
    """Shared by the owners of one instance of ids that the brokers decide."""

    #: Requests to the coordinator of an id, over connections of their own.
    requests: "Callable[[str], BrokerCoordinator]"
    #: Connections for the data of one transactional id.
    connections: Callable[[], Connections]
    #: Keeps what a restart of kproxy needs.
    log: "EpochLog"
    stats: Counters
    time: Time
    report: Report
    #: No id is taken while the kproxy before this is there: it ends its transactions itself.
    alone: Alone
    #: Whether a topic is one of kproxy's own.
    is_own_topic: Callable[[str], bool]
    #: The longest wait for the log, in seconds.
    patience_s: float
    #: Brokers remember an id that nobody uses for so long (``transactional.id.timeout.ms``).
    unused_ms: int


class BrokerOwners:
    """Makes them when their ids are taken, and forgets those that nobody uses."""

    #: The brokers abort what may be open when the id is initialized, or after its time-out.
    offsets_wait: Final = True

    def __init__(self, tools: BrokerTools) -> None:
        """Nothing is asked of the brokers before a transaction begins."""
        self._tools = tools
        self._now = tools.time.now
        self._log = tools.log
        self._owners: dict[str, BrokerOwner] = {}
        #: Those at rest (``BrokerOwner.pack``), and when they were used last, by ``Time.now``.
        self._packed: dict[str, tuple[float, bytes]] = {}
        #: When what a former kproxy recorded is swept next, by ``Time.now``.
        self._stored_sweep_at = 0.0
        #: Set when kproxy stops: no transaction begins here after that.
        self.leaving = False

    def __iter__(self) -> "Iterator[BrokerOwner]":
        """The owners of ids of which something may be open, or under way."""
        return iter(self._owners.values())

    def exists(self, transactional_id: str) -> bool:
        """Whether there is an owner of an id here."""
        return transactional_id in self._owners or transactional_id in self._packed

    def known(self, transactional_id: str) -> "BrokerOwner | None":
        """The owner of an id, if there is one here; for those who ask it for something now."""
        owner = self._owners.get(transactional_id)
        if owner is None and transactional_id in self._packed:
            _, packed = self._packed.pop(transactional_id)
            owner = self._make(transactional_id, CLIENT)
            owner.unpack(packed)
        if owner is not None:
            owner.used_at = self._now()  # it is neither packed nor forgotten before it is asked
        return owner

    def owner_now(self, request: TxnRequest) -> "BrokerOwner | None":
        owner = self.known(request.transactional_id)
        return None if owner is None or owner.is_unknown else owner

    async def owner(self, request: TxnRequest) -> "BrokerOwner":
        """The owner for a request. TxnError if neither this kproxy nor the one before a restart gave the identity."""
        transactional_id = request.transactional_id
        if (known := self.owner_now(request)) is not None:
            return known
        stored = continued(await self._stored(transactional_id), request.client, self._tools.stats.count_fenced)
        owner = await self.take(transactional_id, CLIENT)
        await owner.resume(stored)
        return owner

    async def _stored(self, transactional_id: str) -> "StoredEpoch | None":
        """The epoch that the log has of an id. TxnError (COORDINATOR_NOT_AVAILABLE) if it can't be read in time."""
        if not self._log.enabled:
            return None
        with self._tools.time.scope(self._tools.patience_s):
            await self._tools.alone()
            return (await self._log.epochs()).of(transactional_id)
        raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the log of producer ids can't be read")

    async def initialize(
        self, transactional_id: str, timeout_ms: int, resumed: Producer, client_id: str, policy: "OwnerPolicy"
    ) -> Producer:
        if resumed != NOBODY and policy.resumes:
            try:  # a client that had its identity before kproxy was restarted continues, if it is known
                await self.owner(TxnRequest(transactional_id, resumed, 0, client_id))
            except TxnError as error:
                if error.error_code is not ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                    raise
        owner = await self.take(transactional_id, policy)
        return await owner.initialize(timeout_ms, resumed)

    async def refusals(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, ErrorCode]:
        """Errors for kproxy's own topics; the broker refuses others itself."""
        return {place: ErrorCode.TOPIC_AUTHORIZATION_FAILED for place in places if self._tools.is_own_topic(place[0])}

    def answer_expired(self, request: TxnRequest, *, committed: bool) -> Producer | None:
        """Nothing: the broker forgets an id when it expires."""
        return None

    async def take(self, transactional_id: str, policy: "OwnerPolicy") -> "BrokerOwner":
        """The owner of an id that a client asks to have. TxnError while kproxy stops."""
        if self.leaving:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "kproxy is being stopped")
        await self._tools.alone()
        owner = self.known(transactional_id) or self._make(transactional_id, policy)
        owner.policy = policy
        return owner

    def _make(self, transactional_id: str, policy: "OwnerPolicy") -> "BrokerOwner":
        from kproxy.txn.procedures.broker_owner import BrokerOwner  # not where no broker decides
        from kproxy.txn.procedures.kept_epoch import KeptEpoch

        tools = self._tools
        requests = tools.requests(transactional_id)
        kept = KeptEpoch(tools.log, transactional_id, tools.stats, tools.time, tools.report)
        owner = BrokerOwner(transactional_id, requests, tools.connections(), tools.stats, kept, tools.time)
        owner.policy = policy
        self._owners[transactional_id] = owner
        if not len(self._owners) % _OFTEN:
            disconnect_idle(self, self._now())
        return owner

    async def run(self) -> None:
        """Forgets ids that nobody uses; for ever."""
        try:
            while True:
                await self._tools.time.sleep(_SWEEP_SECONDS)
                self._sweep(self._now())
                await self._expire_stored()
        finally:
            for name in list(self._owners):
                self._forget(name)

    def _sweep(self, now: float) -> None:
        disconnect_idle(self, now)
        known_s = self._tools.unused_ms / 1000
        for name in [name for name, (used_at, _) in self._packed.items() if now > used_at + known_s]:
            if (expired := self.known(name)) is not None:
                expired.expire()
                self._forget(name)
        for name, owner in list(self._owners.items()):
            in_use = owner.is_open or owner.is_busy
            if not in_use and now > owner.used_at + (known_s if owner.policy.idle_s is None else owner.policy.idle_s):
                owner.expire()
                self._forget(name)
            elif owner.policy is CLIENT and now >= owner.used_at + _PACKED_AFTER_SECONDS:
                self._pack(name, owner)

    def _pack(self, transactional_id: str, owner: "BrokerOwner") -> bool:
        """Packs an owner if it rests, and returns whether it does."""
        packed = owner.pack()
        if packed is None:
            return False
        self._packed[transactional_id] = owner.used_at, packed
        self._forget(transactional_id)
        return True

    async def _expire_stored(self) -> None:
        """Deletes, now and then, what a former kproxy recorded and the brokers have forgotten since."""
        if self._now() < self._stored_sweep_at or not self._log.opened.is_set():
            return
        self._stored_sweep_at = self._now() + _STORED_SWEEP_SECONDS
        oldest_ms = self._log.now_ms() - self._tools.unused_ms
        if not self._log.has_epochs_before(oldest_ms):
            return
        with self._tools.time.scope(_SWEEP_SECONDS):
            for name in (await self._log.epochs()).before(oldest_ms):
                if not self.exists(name) and self._log.enabled:
                    self._log.put_epoch(name, None)

    def _forget(self, transactional_id: str) -> None:
        self._owners.pop(transactional_id).close()
