"""The owners of this instance of the transactional ids whose transactions the brokers decide."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config.transaction_options import TransactionOptions
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.succession import Succession
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.proxy.routing import is_own_topic
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.outside import Report, Time
from kproxy.txn.procedures.owner import disconnect_idle
from kproxy.txn.procedures.owner_policy import CLIENT
from kproxy.txn.requests import TxnRequest
from kproxy.txn.stored_epochs import continued
from kproxy.txn.txn_error import TxnError

if TYPE_CHECKING:
    from kproxy.txn.procedures.broker_owner import BrokerOwner
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


class BrokerOwners:
    """Makes them when their ids are taken, and forgets those that nobody uses."""

    #: The brokers abort what may be open when the id is initialized, or after its time-out.
    offsets_wait: Final = True

    def __init__(
        self,
        cluster: Cluster,
        config: TransactionOptions,
        stats: TransactionStats,
        connections: Callable[[], WriterConnections],
        log: "EpochLog",
        succession: Succession,
        time: Time,
        report: Report,
    ) -> None:
        """Nothing is asked of the brokers before a transaction begins. ``log`` keeps what a restart of kproxy needs.

        By ``succession`` no id is taken while the kproxy before this is there: it ends its transactions itself.
        """
        self._succession = succession
        self._time, self._report = time, report
        self._cluster = cluster
        self._config = config
        self._stats = stats
        self._connections = connections
        self._owners: dict[str, BrokerOwner] = {}
        #: Those at rest (``BrokerOwner.pack``), and when they were used last, by trio's clock.
        self._packed: dict[str, tuple[float, bytes]] = {}
        self._log = log
        #: When what a former kproxy recorded is swept next, by trio's clock.
        self._stored_sweep_at = 0.0
        #: For requests to coordinators, beside those for data.
        self._asking: dict[str, WriterConnections] = {}
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
            owner.used_at = trio.current_time()  # it is neither packed nor forgotten before it is asked
        return owner

    def owner_now(self, request: TxnRequest) -> "BrokerOwner | None":
        owner = self.known(request.transactional_id)
        return None if owner is None or owner.is_unknown else owner

    async def owner(self, request: TxnRequest) -> "BrokerOwner":
        """The owner for a request. TxnError if neither this kproxy nor the one before a restart gave the identity."""
        transactional_id = request.transactional_id
        if (known := self.owner_now(request)) is not None:
            return known
        stored = continued(await self._stored(transactional_id), request.client, self._stats.count_fenced)
        owner = await self.take(transactional_id, CLIENT)
        await owner.resume(stored)
        return owner

    async def _stored(self, transactional_id: str) -> "StoredEpoch | None":
        """The epoch that the log has of an id. TxnError (COORDINATOR_NOT_AVAILABLE) if it can't be read in time."""
        if not self._log.enabled:
            return None
        with trio.move_on_after(self._config.delivery_timeout_ms / 1000):
            await self._succession.alone()
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
        return {place: ErrorCode.TOPIC_AUTHORIZATION_FAILED for place in places if is_own_topic(place[0])}

    def answer_expired(self, request: TxnRequest, *, committed: bool) -> Producer | None:
        """Nothing: the broker forgets an id when it expires."""
        return None

    async def take(self, transactional_id: str, policy: "OwnerPolicy") -> "BrokerOwner":
        """The owner of an id that a client asks to have. TxnError while kproxy stops."""
        if self.leaving:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "kproxy is being stopped")
        await self._succession.alone()
        owner = self.known(transactional_id) or self._make(transactional_id, policy)
        owner.policy = policy
        return owner

    def _make(self, transactional_id: str, policy: "OwnerPolicy") -> "BrokerOwner":
        from kproxy.net.txn.broker.broker_requests import BrokerRequests
        from kproxy.txn.procedures.broker_owner import BrokerOwner  # not where no broker decides
        from kproxy.txn.procedures.kept_epoch import KeptEpoch

        patience_s = self._config.delivery_timeout_ms / 1000
        asking = self._asking[transactional_id] = self._connections()
        requests = BrokerRequests(self._cluster, transactional_id, patience_s, asking)
        kept = KeptEpoch(self._log, transactional_id, self._stats, self._time, self._report)
        owner = BrokerOwner(transactional_id, requests, self._connections(), self._stats, kept, self._time)
        owner.policy = policy
        self._owners[transactional_id] = owner
        if not len(self._owners) % _OFTEN:
            disconnect_idle(self, trio.current_time())
        return owner

    async def run(self) -> None:
        """Forgets ids that nobody uses; for ever."""
        try:
            while True:
                await trio.sleep(_SWEEP_SECONDS)
                self._sweep(trio.current_time())
                await self._expire_stored()
        finally:
            for name in list(self._owners):
                self._forget(name)

    def _sweep(self, now: float) -> None:
        disconnect_idle(self, now)
        known_s = self._config.transactional_id_timeout_ms / 1000
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
        if trio.current_time() < self._stored_sweep_at or not self._log.opened.is_set():
            return
        self._stored_sweep_at = trio.current_time() + _STORED_SWEEP_SECONDS
        oldest_ms = self._log.now_ms() - self._config.transactional_id_timeout_ms
        if not self._log.has_epochs_before(oldest_ms):
            return
        with trio.move_on_after(_SWEEP_SECONDS):
            for name in (await self._log.epochs()).before(oldest_ms):
                if not self.exists(name) and self._log.enabled:
                    self._log.put_epoch(name, None)

    def _forget(self, transactional_id: str) -> None:
        self._owners.pop(transactional_id).close()
        self._asking.pop(transactional_id).close()
