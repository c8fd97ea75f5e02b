"""The claim under which an id's records are appended: taken, used, given up when the log does not answer clearly."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kproxy.codec.messages import ErrorCode, Message
from kproxy.errors import RemoteProtocolError
from kproxy.txn.claims import (
    NOBODY,
    Claimant,
    initialized_client,
    needs_client_producer_id,
    needs_producer_id,
    next_claim,
    overtaken,
)
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures.outside import NotAppended, OwnerTools
from kproxy.txn.repeated_ends import last_end
from kproxy.txn.transactional_id import TransactionalId
from kproxy.txn.txn_error import TxnError
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import IdView
from kproxy.txn.view_values import Ongoing

if TYPE_CHECKING:
    from kproxy.codec.topic_partition import TopicPartition
    from kproxy.txn.view_values import IdClaim

#: Claims in a row that were lost to others, before the client has to retry.
_MOST_CLAIMS = 10
_FOREIGN: Final = (
    "the log holds what this kproxy does not understand (a newer one wrote it: upgrade), or its beginning is lost; "
    "kproxy txn log shows it"
)


class _Superseded(TxnError):
    """A claim failed because nothing is left to claim for."""


class ClaimKeeper:
    """The claim of one transactional id; used by one task at a time."""

    def __init__(self, transactional_id: str, tools: OwnerTools, known: TransactionalId | None = None) -> None:
        """Nothing is claimed yet. ``known`` has the client's identity, if anybody else needs it."""
        self._known = known or TransactionalId(tools.stats.count_fenced)
        self.transactional_id = transactional_id
        self._tools = tools
        #: The instance for which this keeper claims.
        self.instance_id = tools.instance_id
        self.claim: IdClaim | None = None
        #: The instance whose claim came before this keeper's last one.
        self.former_instance = ""
        #: Whether other instances had the id for the same client: they may lag, and still write for it.
        self.had_others = False
        #: Partitions where those have been fenced.
        self.fenced_at: set[TopicPartition] = set()
        self.client_id = ""
        self.timeout_ms = 0
        self._next_epoch = 0
        self._sequence = 0
        #: The nonce of another instance's claim that this one took over, or acts for.
        self._basis = b""
        #: Whether another instance continues the client's transaction.
        self.has_left = False

    @property
    def client(self) -> Producer:
        """The client's identity as this instance knows it: a view that has another fences the client."""
        return self._known.client

    @client.setter
    def client(self, client: Producer) -> None:
        self._known.client = client

    # -- the view

    @property
    def view(self) -> IdView | None:
        """The view of the id, as far as the log has been read."""
        return self._tools.log.views.of(self.transactional_id)

    async def read_to_end(self) -> IdView | None:
        """The view of the id at the end of the log. TxnError if it can't be read."""
        try:
            view = await self._tools.log.read_to_end(self.transactional_id)
        except (OSError, RemoteProtocolError) as error:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the transaction log: {error}") from error
        if self._tools.log.is_foreign(self.transactional_id):
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, _FOREIGN)
        return view

    def holds(self, view: IdView | None) -> bool:
        """Whether the claim of this keeper is the one under which the next record counts."""
        return self.claim is not None and view is not None and view.is_ours(self.claim.nonce) and not view.expired

    def is_elsewhere(self, view: IdView | None) -> bool:
        """Whether another instance has claimed the id since this one had it, or decided under the claim taken over."""
        if view is None or view.claim is None:
            return False
        if view.claim.nonce == self._basis:
            return view.client != self.client
        return view.claim.instance_id != self._tools.instance_id and not self.holds(view)

    def is_former(self, part: Producer) -> bool:
        """Whether another instance continues what this one has begun under an epoch."""
        return self.view is not None and self.view.is_former(part)

    def note_left(self, part: Producer) -> None:
        """Records that the transaction has left this instance if another one continues this epoch."""
        self.has_left |= self.is_former(part)

    def take_over(self, view: IdView) -> None:
        """Takes the client over: this keeper claims for the client that has the id from now on."""
        assert view.claim is not None
        self.client, self.client_id, self.timeout_ms = view.client, view.claim.client_id, view.claim.timeout_ms
        self._basis = view.claim.nonce

    def serve(self, view: IdView) -> None:
        """Acts for others: this keeper claims on behalf of the instance and the client that have the id from now on."""
        assert view.claim is not None
        self._basis = view.claim.nonce
        self.claim, self.client, self.client_id = None, view.client, view.claim.client_id
        self.instance_id, self.timeout_ms = view.claim.instance_id, view.claim.timeout_ms

    # -- claiming

    async def claim_for(
        self,
        identity: Callable[[IdView | None], Awaitable[Producer]],
        resumed: Producer = NOBODY,
        continued: Producer = NOBODY,
    ) -> IdView:
        """Claims the next block, until the log shows a claim of ours as the one that holds; the view then.

        ``identity`` gives the client's identity from each view that is claimed behind; NOBODY: the one that it has by
        then. ``continued``: the open transaction that is not to be aborted. TxnError.
        """
        self.claim = None
        view = await self.read_to_end()
        for _ in range(_MOST_CLAIMS):
            won, view = await self.claim_once(view, await identity(view), resumed, continued)
            if won and view is not None:
                return view
        raise overtaken()

    async def claim_to_initialize(self, resumed: Producer) -> IdView:
        """The next block for a client that begins with its next identity; all that was open is aborted by it. TxnError.

        ``resumed``: the identity that the client has (KIP-360), or NOBODY.
        """

        async def following(view: IdView | None) -> Producer:
            known = view.client if view is not None else NOBODY
            fresh = await self._tools.new_producer_id() if needs_client_producer_id(known) else -1
            return initialized_client(view, resumed, fresh)

        view = await self.claim_for(following, resumed)
        self.has_left = False
        return view

    async def claim_again(self, own: Producer = NOBODY) -> IdView:
        """The next block for the same client; all that was open is aborted by it. TxnError, also if it was fenced.

        ``own``: what this instance has begun. If another continues it, nothing is claimed.
        """

        async def same(view: IdView | None) -> Producer:
            if view is not None and view.is_former(own):
                raise self.continued_elsewhere(view)
            return self._same_client(view)

        return await self.claim_for(same)

    async def claim_to_continue(self, open_part: Producer) -> IdView:
        """The next block for the same client, which aborts nothing: its first epoch continues what is open.

        TxnError, also if others claim the id.
        """

        async def same(view: IdView | None) -> Producer:
            if view is None or view.ongoing is None or view.ongoing.producer != open_part:
                raise overtaken()
            return self._same_client(view)

        return await self.claim_for(same, continued=open_part)

    async def settle(self, producer: Producer) -> IdView:
        """A view that shows what became of an epoch: a claim aborts it where the log has no decision. TxnError.

        No claim is made once the decision is there, which may have been under way until now: it is the client's own,
        and has given it its next identity.
        """

        async def same(view: IdView | None) -> Producer:
            if view is not None and view.is_former(producer):
                raise self.continued_elsewhere(view)
            if view is not None and view.verdict(producer) is not Verdict.UNDECIDED:
                raise _Superseded(ErrorCode.CONCURRENT_TRANSACTIONS, "it is decided")
            return self._same_client(view)

        with suppress(_Superseded):
            return await self.claim_for(same)
        view = self.view
        assert view is not None
        return view

    def _same_client(self, view: IdView | None) -> Producer:
        """The client for the next claim: the one that the log has, or this one if the log has lost it. TxnError."""
        if view is None or view.claim is None:
            return self.client
        if view.client != self.client:
            raise self.fenced()
        return NOBODY

    async def end_open(self, since: Ongoing) -> None:
        """Aborts, by a claim, what has been open since then and is not prepared; TxnError.

        If it has ended by now, a claim would only fence the current owner of the id.
        """

        async def same(view: IdView | None) -> Producer:
            if view is None or view.open_since() != since:
                raise _Superseded(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction has ended")
            return NOBODY

        with suppress(_Superseded):
            await self.claim_for(same)

    async def claim_once(
        self, view: IdView | None, client: Producer, resumed: Producer = NOBODY, continued: Producer = NOBODY
    ) -> tuple[bool, IdView | None]:
        """Claims once, for a client as of ``claim_for``.

        Whether the log shows it as the claim that holds, and the view at the log's end. TxnError.
        """
        fresh = await self._tools.new_producer_id() if needs_producer_id(view) else 0
        former = view.claim if view is not None else None
        nonce = self._tools.nonce()
        claimant = Claimant(nonce, client, resumed, self.timeout_ms, self.instance_id, self.client_id, continued)
        body = next_claim(view, claimant, fresh)
        entry = Entry(self.transactional_id, body)
        try:
            await self._tools.log.append(entry, body.producer_id, body.first_epoch, 0)
        except NotAppended as error:
            self._tools.report("debug", "claim not acknowledged", self.transactional_id, reason=str(error))
        view = await self.read_to_end()
        named = client == NOBODY or (view is not None and view.claim is not None and view.claim.names_client)
        if view is None or view.claim is None or not view.is_ours(nonce) or view.expired or not named:
            self._tools.stats.claimed("lost")
            return False, view
        self._tools.stats.claimed("won")
        self._note_former(former, is_same=client == NOBODY)
        self.claim, self._sequence, self._next_epoch = view.claim, 1, view.claim.first_epoch
        self.client = view.client
        return True, view

    def _note_former(self, former: "IdClaim | None", *, is_same: bool) -> None:
        """Records whose claim came before this one. A client with another identity writes nothing there."""
        self.former_instance = former.instance_id if former is not None else ""
        if not is_same or (former is not None and former.instance_id != self._tools.instance_id):
            self.had_others = is_same
            self.fenced_at.clear()

    def fenced(self) -> TxnError:
        """The error for a client that has been replaced; the claim is given up.

        A client that has ended its transaction elsewhere is not: it may repeat its EndTxn.
        """
        self.claim = None
        last = last_end(self.view)
        if last is not None and last.client == self.client:
            return TxnError(ErrorCode.NOT_COORDINATOR, "the transaction was ended at another instance")
        return TxnError(ErrorCode.PRODUCER_FENCED, "a newer producer has the transactional id")

    def continued_elsewhere(self, view: IdView) -> TxnError:
        """The error for a client that continues its transaction through another instance; the claim is given up."""
        assert view.claim is not None
        self.claim, self.has_left = None, True
        return TxnError(ErrorCode.NOT_COORDINATOR, f"{view.claim.instance_id} continues the transaction")

    # -- using it

    async def take_epoch(self) -> Producer:
        """An epoch for the next transaction; TxnError if a block must be claimed for it and can't be.

        The one that the log names: members may have joined it already, wherever they are.
        """
        view = self.view
        producer = view.next_epoch() if view is not None and self.holds(view) else None
        if producer is None or producer.epoch < self._next_epoch:
            view = await self.claim_again()
            producer = view.next_epoch()
        assert producer is not None
        self._next_epoch = producer.epoch + 1
        return producer

    async def append(self, body: Message) -> IdView | None:
        """Appends under the claim; the view after the record or, if its outcome is unknown, at the end of the log."""
        return self.view if await self._append(self._tools.log.append, body) else await self.read_to_end()

    async def announce(self, body: Message) -> bool:
        """Appends what need only be in the log before something else happens; whether it is known to be there.

        Where it does not count, since another claim stands before it, nor does what follows.
        """
        return await self._append(self._tools.log.append_unread, body)

    async def _append(self, how: Callable[[Entry, int, int, int], Awaitable[object]], body: Message) -> bool:
        """False if its outcome is not known; then the claim ends: a sequence that was sent once keeps its content."""
        claim = self.claim
        assert claim is not None
        sequence, self._sequence = self._sequence, self._sequence + 1
        try:
            await how(Entry(self.transactional_id, body), claim.producer_id, claim.first_epoch, sequence)
        except NotAppended as error:
            self._tools.report("info", "no acknowledgement by the log", self.transactional_id, reason=str(error))
            self.claim = None
            return False
        except BaseException:
            self.claim = None
            raise
        return True
