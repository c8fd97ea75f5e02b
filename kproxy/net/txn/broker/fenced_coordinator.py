"""Transactions of KIP-98's clients that brokers decide and kproxy asks for: ``ClientDecider`` by ``BrokerOwner``."""

from collections.abc import Callable, Collection, Mapping, Sequence

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.net.txn.broker.broker_owner import CLIENT, BrokerOwner
from kproxy.net.txn.broker.broker_owners import BrokerOwners
from kproxy.proxy.routing import is_own_topic
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.requests import ClientBatch, TxnRequest, Written
from kproxy.txn.txn_error import TxnError


class FencedCoordinator(BrokerOwners):
    """The owners by transactional id."""

    _policy = CLIENT

    def parties(self) -> Collection[int]:
        """The connections of open transactions."""
        return {connection for owner in self._owners.values() for connection in owner.parties()}

    # -- as ``ClientDecider``

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, client: Producer | None, client_id: str
    ) -> Producer:
        """As ``ClientDecider``; the broker checks the time-out, and whether ``client`` has the id."""
        if not transactional_id:
            raise TxnError(ErrorCode.INVALID_REQUEST, "an empty transactional id")
        owner = await self._take(transactional_id)
        return await self._jobs.run(lambda: owner.initialize(timeout_ms, client or NOBODY))

    async def add_partitions(
        self, request: TxnRequest, places: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """As ``ClientDecider``."""
        errors = {place: ErrorCode.TOPIC_AUTHORIZATION_FAILED for place in places if is_own_topic(place[0])}
        if not errors:
            owner = self._owner(request)
            await self._jobs.run(lambda: owner.join(request, places))
        return errors

    async def add_offsets(self, request: TxnRequest, group_id: str) -> None:
        """As ``ClientDecider``."""
        owner = self._owner(request)
        await self._jobs.run(lambda: owner.add_offsets(request, group_id))

    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets, *, implicit: bool) -> None:
        """As ``ClientDecider``."""
        owner = self._owner(request)
        await self._jobs.run(lambda: owner.commit_offsets(request, offsets, implicit=implicit))

    async def produce(
        self, request: TxnRequest, batches: Sequence[ClientBatch], *, implicit: bool, accepted: Callable[[], None]
    ) -> Sequence[Written]:
        """As ``ClientDecider``."""
        owner = self._owner(request)
        # What is accepted at once is the writer's, and ends with the transaction: it needs nobody who goes on to wait.
        begin = self._jobs.within if owner.takes_at_once(batches) else self._jobs.run
        return await begin(lambda: owner.produce(request, batches, implicit=implicit, accepted=accepted))

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool) -> Producer:
        """As ``ClientDecider``."""
        owner = self._owner(request)
        return await self._jobs.run(lambda: owner.end(request, committed=committed, bumps=bumps))

    def _owner(self, request: TxnRequest) -> BrokerOwner:
        """TxnError for a client whose producer id and epoch this kproxy has not given out."""
        owner = self._owners.get(request.transactional_id)
        if owner is None:
            why = "this kproxy has not given out its producer id: it was restarted, or another has"
            raise TxnError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, why)
        return owner

    @property
    def _idle_seconds(self) -> float:
        """The brokers have forgotten the id by then, too."""
        return self._config.transactional_id_timeout_ms / 1000
