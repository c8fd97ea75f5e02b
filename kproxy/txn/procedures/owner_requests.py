"""Requests to the owners of transactional ids: which owner is asked, and by which job that outlives its client.

Clients with transactions ask (``kproxy.net.txn.coordinator``), and kproxy itself for those without (``ManagedTools``).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import ALONE, DecisionScope
from kproxy.txn.procedures.outside import JobRunner
from kproxy.txn.procedures.owner_policy import CLIENT, OwnerPolicy
from kproxy.txn.requests import ClientBatch, IdHolder, TxnRequest, Written
from kproxy.txn.txn_error import TxnError

if TYPE_CHECKING:
    from kproxy.txn.procedures.owner import Owner
    from kproxy.txn.procedures.owners import Owners

T = TypeVar("T")


class OwnerRequests:
    """The requests of one instance. All raise TxnError with the error for the client."""

    def __init__(
        self, owners: "Callable[[str], Owners]", jobs: JobRunner, foreign: Callable[[TxnRequest], None]
    ) -> None:
        """``owners``: where the transactions of an id are decided. ``foreign`` counts and logs a refused request."""
        self._owners = owners
        self._jobs = jobs
        self._foreign = foreign

    async def _owner(self, request: TxnRequest, *, ends: bool = False) -> "Owner":
        """The owner for a request. TxnError (INVALID_PRODUCER_ID_MAPPING) if it uses somebody else's identity."""
        owners = self._owners(request.transactional_id)
        known = owners.owner_now(request)
        owner = known if known is not None else await self._jobs.run(lambda: owners.owner(request))
        if owner.id.is_foreign(request, ends=ends):
            self._foreign(request)
            raise _foreign()
        return owner

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        client: Producer | None,
        client_id: str,
        policy: OwnerPolicy = CLIENT,
        holder: IdHolder | None = None,
    ) -> Producer:
        """The client's producer id and epoch; a producer that had the id is fenced, and what was open is aborted.

        ``client``: the identity that it has (KIP-360). ``policy``: for which kind of client the broker is asked.
        ``holder``: the client, to which the identity belongs from now on.
        """
        if not transactional_id:
            raise TxnError(ErrorCode.INVALID_REQUEST, "an empty transactional id")
        owners = self._owners(transactional_id)
        resumed = client or NOBODY
        producer = await self._jobs.run(
            lambda: owners.initialize(transactional_id, timeout_ms, resumed, client_id, policy)
        )
        owner = owners.known(transactional_id)
        if owner is not None and owner.id.client == producer:  # no other has taken it meanwhile
            owner.id.holder = holder
        return producer

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
        if owner.id.is_foreign(request):
            raise _foreign()  # ``produce`` counts it
        self._jobs.do(lambda: owner.produce_at_once(request, batches, written, implicit=implicit))

    def _known(self, transactional_id: str) -> "Owner | None":
        return self._owners(transactional_id).known(transactional_id)

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool, also: DecisionScope = ALONE) -> Producer:
        """The client's producer id and epoch for what follows."""
        try:
            owner = await self._owner(request, ends=True)
        except TxnError:
            told = self._owners(request.transactional_id).answer_expired(request, committed=committed)
            if told is None:
                raise
            return told
        return await self._jobs.run(lambda: owner.end(request, committed=committed, bumps=bumps, also=also))

    async def prepare(self, request: TxnRequest, batch_id: str | None = None) -> None:
        """The transaction waits for a later decision, for as long as it takes."""
        owner = await self._owner(request)
        await self._jobs.run(lambda: owner.prepare(request, batch_id))

    def offsets_wait(self, transactional_id: str) -> bool:
        """Whether a group's offsets wait for a transaction of an id that may be open (``Owners.offsets_wait``)."""
        return self._owners(transactional_id).offsets_wait

    def start(self, work: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """Begins work that outlives the request; the result waits for it. TxnError."""
        return self._jobs.start(work)


def _foreign() -> TxnError:
    return TxnError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the producer id was given to another client")


def _refuse_nameless(group_id: str) -> None:
    if not group_id:
        raise TxnError(ErrorCode.INVALID_GROUP_ID, "an empty group id")
