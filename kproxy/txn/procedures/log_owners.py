"""The instance that coordinates a transactional id at kproxy's own log, and the end of what nobody else ends.

Any instance may own any id: the log decides between them. An id is claimed for a client that asks for a producer id,
for one that continues after a restart of its kproxy, and, by the instance that sees it, to end what is overdue.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nsmallest
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kproxy.codec._generated.transaction_expiry import TransactionExpiry
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.claims import refuse_replaced
from kproxy.txn.ids import Producer, turn_of
from kproxy.txn.log_records import Entry
from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.procedures.asking_clients import AskingClients
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.procedures.outside import Alone, Lock, OwnerTools
from kproxy.txn.procedures.owner import disconnect_idle
from kproxy.txn.procedures.owner_policy import CLIENT, OwnerPolicy
from kproxy.txn.repeated_ends import last_end
from kproxy.txn.requests import TxnRequest
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView

if TYPE_CHECKING:
    from kproxy.txn.procedures.log_owner import LogOwner

#: Ids for which nobody has anything to do are checked this seldom: a fleet may have many thousands.
_ALL_SECONDS: Final = 10.0
#: Longer than its time-out plus this, and its own kproxy must be gone.
_OTHERS_GRACE_MS: Final = 10_000
#: All instances see at the same time what any of them may do. Each waits for its turn within this time.
_TURNS_MS: Final = 5_000
_EXPIRY_TURNS_MS: Final = 3_600_000
#: Ids that nothing was asked of for so long are forgotten here; the log has them.
_IDLE_SECONDS: Final = 3_600.0
#: No more are kept of those that were not used for so long: nothing of their clients is in flight by then.
_MOST_AT_REST: Final = 1_000
_LATE_SECONDS: Final = 60.0
#: Of those that rest so many are checked at a time.
_MOST_UNPACKED: Final = 1_000
#: Ids that are given up in one look at all of them.
_MOST_EXPIRED: Final = 10


class Terms(NamedTuple):
    """The longest times of ids and their transactions."""

    #: Of a transaction, in ms (``transaction.max.timeout.ms``).
    longest_ms: int
    #: Of an id that nobody uses, in ms (``transactional.id.timeout.ms``).
    unused_ms: int


#: Begins a procedure about an id, unless one is under way that it began before.
Start: TypeAlias = Callable[[str, Callable[[], Awaitable[object]]], None]


class LogOwners:
    """The owners of this instance, by transactional id. What waits raises TxnError."""

    #: ``end_left`` aborts what a group waits for.
    offsets_wait: Final = False

    def __init__(self, tools: OwnerTools, terms: Terms, alone: Alone, start: Start) -> None:
        """Owns no id yet. ``start`` begins what nobody waits for.

        What the process before this one had claimed is left to it until ``alone`` returns.
        """
        self._alone = alone
        self._tools = tools
        self._terms = terms
        self._now = tools.time.now
        self._start = start
        self._owners: dict[str, LogOwner] = {}
        #: By id: one takeover may wait for partitions that have no leader, and others must not wait for it.
        self._taking_over: dict[str, Lock] = {}
        self._asking = AskingClients(self._now)
        #: Whether no former self of this instance is there any more.
        self._is_alone = False
        #: Set when kproxy stops: no transaction begins here after that.
        self.leaving = False
        #: Of ids of other instances: the offset of the last record that counted, and when it was first seen here.
        self._changed_at: dict[str, tuple[int, float]] = {}
        #: When all ids were gone through last.
        self._swept_at = -_ALL_SECONDS

    # -- owners

    async def initialize(
        self, transactional_id: str, timeout_ms: int, resumed: Producer, client_id: str, policy: OwnerPolicy = CLIENT
    ) -> Producer:
        """Initializes an owner (``Owners.initialize``); clients of each kind are served alike."""
        if self.leaving:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "kproxy is being stopped")
        self.check_timeout(timeout_ms)
        return await self._any(transactional_id).initialize(timeout_ms, resumed, client_id)

    def check_timeout(self, timeout_ms: int) -> None:
        """TxnError if a transaction may not take so long."""
        longest = self._terms.longest_ms
        if not 0 < timeout_ms <= longest:
            raise TxnError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"{timeout_ms} ms is not between 1 and {longest} ms")

    async def decide(
        self, transactional_id: str, client: Producer | None, *, committed: bool, also: DecisionScope
    ) -> None:
        """Decides parts that were prepared, whichever instance owns the id, as ``LogOwner.decide``."""
        await self._any(transactional_id).decide(client, committed=committed, also=also)

    def answer_expired(self, request: TxnRequest, *, committed: bool) -> Producer | None:
        """The response to a repeated EndTxn of an id that has expired since, if the log has it.

        Nothing can have begun under the same identity.
        """
        view = self._tools.log.views.of(request.transactional_id)
        last = last_end(view)
        if view is None or not view.expired or last is None:
            return None
        return last.next_client if (last.client, last.committed) == (request.client, committed) else None

    def exists(self, transactional_id: str) -> bool:
        """Whether somebody has an id, by the log, and it has not expired."""
        view = self._tools.log.views.of(transactional_id)
        return view is not None and not view.expired

    async def refusals(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, ErrorCode]:
        """The partitions that can't be written, with their errors (``Topics.errors``)."""
        return await self._tools.topics.errors(places)

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return bool(self._owners)

    def __iter__(self) -> "Iterator[LogOwner]":
        """All."""
        return iter(self._owners.values())

    def _any(self, transactional_id: str) -> "LogOwner":
        """The owner of an id; a new one if there is none.

        Its turn is to be taken before the next checkpoint: one that no client has the id from is replaced.
        """
        owner = self._owners.get(transactional_id)
        if owner is None:
            owner = self._owners[transactional_id] = self._new(transactional_id)
        return owner

    def _new(self, transactional_id: str) -> "LogOwner":
        from kproxy.txn.procedures.log_owner import LogOwner  # not before a transaction is asked for

        return LogOwner(transactional_id, self._tools)

    def known(self, transactional_id: str) -> "LogOwner | None":
        """The owner of an id, if there is one here."""
        return self._owners.get(transactional_id)

    def owner_now(self, request: TxnRequest) -> "LogOwner | None":
        """The owner for a request, if that needs no look at the log."""
        owner = self._owners.get(request.transactional_id)
        if owner is None or owner.id.may_be_behind(request.client) or owner.is_elsewhere:
            return None
        return owner

    async def owner(self, request: TxnRequest) -> "LogOwner":
        """The owner for a request; one is made where the id's last owner was this instance's former self."""
        transactional_id = request.transactional_id
        owner = self._owners.get(transactional_id)
        if owner is not None and owner.id.may_be_behind(request.client):
            await owner.keeper.read_to_end()
        if owner is not None and not owner.is_elsewhere:
            return owner
        await self._alone()
        lock = self._taking_over.setdefault(transactional_id, self._tools.time.lock())
        try:
            await lock.acquire()
            try:
                return await self._taken_over(request)
            finally:
                lock.release()
        finally:
            if not lock.locked():  # else who waited for it has it now
                self._taking_over.pop(transactional_id, None)

    async def _taken_over(self, request: TxnRequest) -> "LogOwner":
        transactional_id = request.transactional_id
        known = self._owners.get(transactional_id)
        if known is not None:
            if not known.is_elsewhere:
                return known  # another request came first
            self._forget(transactional_id, known)
        view = await ClaimKeeper(transactional_id, self._tools).read_to_end()
        if view is None or view.claim is None or view.expired:
            raise TxnError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "nobody has asked for a producer id for it")
        if not (self._is_mine(view) or self._is_silent(view)):
            # else a replaced client would ask for the coordinator, come here, and retry for ever
            refuse_replaced(view, request.client)
            if not self._asking.has_waited(view, request):
                raise TxnError(ErrorCode.NOT_COORDINATOR, f"{view.claim.instance_id} coordinates the transactional id")
        owner = self._new(transactional_id)
        if not self._is_mine(view):
            owner.id.refuse_older(self._asking.newest(request))
        await owner.adopt(view)
        self._asking.forget(transactional_id)
        found = self._owners.setdefault(transactional_id, owner)
        if found is not owner:
            owner.discard()  # a producer has initialized the id meanwhile
        return found

    def _is_mine(self, view: IdView) -> bool:
        """Whether this instance, or its former self, coordinates the id."""
        return view.claim is not None and view.claim.instance_id == self._tools.instance_id

    def _forget(self, transactional_id: str, owner: "LogOwner") -> None:
        owner.close()
        del self._owners[transactional_id]

    def _forget_many(self, now: float) -> None:
        """Forgets the owners at rest that were used least recently, if there are many: each takes several KB."""
        if len(self._owners) <= _MOST_AT_REST:
            return
        idle = [
            (owner.used_at, name)
            for name, owner in self._owners.items()
            if owner.is_at_rest and not owner.is_open and now > owner.used_at + _LATE_SECONDS
        ]
        for _, name in nsmallest(len(self._owners) - _MOST_AT_REST, idle):
            self._forget(name, self._owners[name])

    def _turn(self, view: IdView, within_ms: int) -> float:
        """The delay after which this instance does for an id what any may do: seldom do two do it at the same time."""
        return within_ms * turn_of(self._tools.instance_id, view.transactional_id)

    def _is_silent(self, view: IdView, more_ms: float = 0.0) -> bool:
        """Whether an id had no record for longer than a transaction may take: its kproxy has ended, or is idle.

        Measured by this instance's own clock, from when it read the last record: brokers' clocks may show any other
        time.
        """
        assert view.claim is not None
        return self._is_past(view, view.touched.offset, view.claim.timeout_ms + _OTHERS_GRACE_MS + more_ms)

    def _is_over(self, view: IdView, owner: "LogOwner | None") -> bool:
        """Whether this instance may abort what is open of an id.

        Where another instance has claimed the id since this one had it, a decision of that one may be in flight.
        """
        if owner is not None and self._is_mine(view):
            return self._is_overdue(view)
        return self._is_silent(view, self._turn(view, _TURNS_MS))

    def _is_overdue(self, view: IdView) -> bool:
        """Whether the open members of an id of this instance take longer than a transaction may."""
        since = view.open_since()
        assert view.claim is not None
        assert since is not None
        return self._is_past(view, since.since.offset, view.claim.timeout_ms)

    def _is_past(self, view: IdView, offset: int, after_ms: float) -> bool:
        """Whether so long ago this instance saw a record of the id for the first time."""
        now = self._now()
        seen, since = self._changed_at.get(view.transactional_id, (-1, now))
        if seen != offset:
            self._changed_at[view.transactional_id], since = (offset, now), now
        return now > since + after_ms / 1000

    # -- clients that have disconnected

    def closed(self, connection: int) -> None:
        """Records that a client's connection has ended."""
        for owner in self._owners.values():
            owner.id.closed(connection)

    def end_left(self, group_id: str) -> None:
        """Aborts what disconnected clients have left open here, and what a group waits for."""
        for view, _, _ in list(self._tools.log.views.undecided_offsets(group_id)):
            owner = self._owners.get(view.transactional_id)
            if owner is None and self._is_alone and self._is_mine(view) and view.ongoing is not None:
                self.end_overdue(view)
            if owner is not None and owner.id.is_left:
                why = "the producer's connection ended, and its group asks for its offsets"
                self._start(view.transactional_id, partial(owner.give_up, owner.keeper.client, why))

    # -- time

    def look(self) -> None:
        """Ends what takes too long, here and elsewhere, and gives up unused ids; called every now and then."""
        now = self._now()
        for name, owner in list(self._owners.items()):
            if owner.is_overdue(now):
                self._start(name, owner.time_out)
            elif not owner.is_open and now > owner.used_at + _IDLE_SECONDS:
                self._forget(name, owner)
        self._forget_many(now)
        disconnect_idle(self, now)
        views = self._tools.log.views
        if now < self._swept_at + _ALL_SECONDS:
            self._sweep(views.unsettled())
        else:
            self._swept_at = now
            self._sweep([*views.awake(), *views.some_at_rest(_MOST_UNPACKED)])
            views.rest()  # those that were checked, and that nobody has asked for

    def end_former(self) -> None:
        """Aborts what this instance left open before its restart, if nobody can continue it: readers wait less.

        Where nothing was written but by members it is left to them: they may be elsewhere.
        """
        self._is_alone = True
        for view in list(self._tools.log.views.all()):
            is_lost = self._is_mine(view) and view.has_own_data() and not view.awaits_client()
            if is_lost and view.transactional_id not in self._owners:
                self.end_overdue(view)

    @property
    def oldest_open(self) -> float | None:
        """The time at which the oldest transaction that is open here began, by ``Time.now``; None: none is."""
        began = [owner.transaction.began_at for owner in self._owners.values() if owner.transaction is not None]
        return min(began, default=None)

    def _sweep(self, views: Sequence[IdView]) -> None:
        now_ms, expired = self._tools.time.wall_ms(), 0
        for view in views:
            owner, since = self._owners.get(view.transactional_id), view.open_since()
            if view.claim is None or (owner is not None and (owner.is_open or since is None)):
                self._changed_at.pop(view.transactional_id, None)
                continue
            is_over = self._is_over(view, owner)
            if since is not None:
                if is_over:
                    self.end_overdue(view)
            elif self._is_unused(view, now_ms) and expired < _MOST_EXPIRED:
                expired += 1
                self._start(view.transactional_id, partial(self._expire, view))

    def _is_unused(self, view: IdView, now_ms: int) -> bool:
        last_ms = view.touched.timestamp_ms + self._terms.unused_ms + self._turn(view, _EXPIRY_TURNS_MS)
        return not (view.expired or view.prepared) and now_ms > last_ms

    def end_overdue(self, view: IdView) -> None:
        """Aborts a transaction whose kproxy has ended, by a claim that leaves the id to its client's own instance."""
        assert view.claim is not None
        since = view.open_since()
        assert since is not None
        why = "aborting a transaction that its producer does not end"
        self._tools.report("info", why, view.transactional_id, instance_id=view.claim.instance_id)
        self._start(view.transactional_id, partial(self._keeper_for(view).end_open, since))

    def _keeper_for(self, view: IdView) -> ClaimKeeper:
        """A keeper that claims an id on behalf of the instance and the client that have it."""
        keeper = ClaimKeeper(view.transactional_id, self._tools)
        keeper.serve(view)
        return keeper

    async def abort(self, transactional_id: str, client: Producer) -> None:
        """Aborts a client's open transaction by a claim, whichever instance coordinates it; TxnError if it can't."""
        owner = self._owners.get(transactional_id)
        if owner is not None and owner.transaction is not None:
            await owner.give_up(client, "an operator aborted the transaction")
            return
        view = await ClaimKeeper(transactional_id, self._tools).read_to_end()
        if view is not None and view.ongoing is not None and view.client == client:
            await self._keeper_for(view).end_open(view.ongoing)

    async def _expire(self, view: IdView) -> None:
        assert view.claim is not None
        entry = Entry(view.transactional_id, TransactionExpiry(view.claim.nonce))
        await self._tools.log.append_unfenced(entry)

    def close(self) -> None:
        """Closes the connections of all owners."""
        for owner in self._owners.values():
            owner.close()
