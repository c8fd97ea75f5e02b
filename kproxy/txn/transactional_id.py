"""One transactional id as its coordinator knows it, on kproxy's own log or at the broker: state, admission, repetition.

Each rule about which request is admitted, what dooms a transaction and what a repeated or late request receives is
here; ``kproxy.net.txn`` asks before it does anything.
"""

from collections.abc import Callable, Collection
from typing import Final

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.codec.packed import Plain
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.late_requests import COORDINATOR, AddedGroups, NewestConnections
from kproxy.txn.repeated_ends import Ended, last_end
from kproxy.txn.requests import IdHolder, TxnRequest
from kproxy.txn.states import TransactionEvent, TransactionState, next_state
from kproxy.txn.txn_error import TxnError
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import IdView

_FENCED: Final = "a newer producer has the transactional id, or the time of the transaction was over"


class TransactionalId:
    """Used by one request at a time; what may be asked while another request has its turn says so."""

    def __init__(self, fenced: Callable[[], None]) -> None:
        """No producer has the id. ``fenced`` counts the requests of producers that were replaced."""
        self.state = TransactionState.EMPTY
        #: The client's identity, as the client knows it.
        self.client = NOBODY
        #: The client to whom this coordinator has given that identity; None: another one has, or kproxy has it itself.
        self.holder: IdHolder | None = None
        #: The reason why the open transaction can only be aborted, until the client has aborted it.
        self.doomed: TxnError | None = None
        #: Whether the client was replaced by one that this coordinator does not know.
        self.is_fenced = False
        #: Whether this coordinator has only decided by hand for the client, and does not know what the client has open.
        self.acts_for_others = False
        #: Whether the client's connection to its coordinator has ended, and it has not asked since.
        self.is_left = False
        self._fenced = fenced
        self._connections = NewestConnections()
        self._parties: set[int] = set()

    # -- states: each change goes through the table

    def apply(self, event: TransactionEvent) -> None:
        """Records what happened. LocalProtocolError if it may not happen in this state."""
        self.state = next_state(self.state, event)

    @property
    def is_unknown(self) -> bool:
        """Whether this coordinator does not know the client: nobody has received the id here, or continues here."""
        return self.client == NOBODY or self.acts_for_others

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun, and has no certain outcome."""
        return self.state is TransactionState.ONGOING or self.state.is_pending

    @property
    def may_be_committed(self) -> bool:
        """Whether the transaction was to be committed, and it is not certain that it is not."""
        return self.state is TransactionState.PREPARE_COMMIT

    def begin(self) -> bool:
        """The transaction begins, or has begun; whether it was not open before."""
        if self.state is TransactionState.ONGOING:
            return False
        self.apply(TransactionEvent.BEGAN)
        return True

    def ask_to_end(self, *, committed: bool) -> None:
        """Nothing may join the transaction from now on. The same end may be asked for until it is certain."""
        if not self.state.is_pending:
            self.apply(TransactionEvent.COMMIT_ASKED if committed else TransactionEvent.ABORT_ASKED)
        self.refuse_other_end(committed=committed)

    def drop(self) -> bool:
        """The transaction is aborted, or given up, if one is open; whether one was."""
        if not self.is_open:
            return False
        self.apply(TransactionEvent.ABORTED)
        return True

    def initialize(self) -> None:
        """A producer begins with the id; nothing is open, and no older connection is its own."""
        self.apply(TransactionEvent.INITIALIZED)
        self.doomed, self.is_fenced, self.acts_for_others = None, False, False
        self.holder = None
        self.forget_connections()

    def restore(self, *, committed: bool) -> None:
        """The last transaction ended so, with a former coordinator of the id."""
        self.apply(TransactionEvent.BEGAN)
        self.ask_to_end(committed=committed)
        self.apply(TransactionEvent.COMMITTED if committed else TransactionEvent.ABORTED)

    # -- which requests are admitted

    def admit(self, request: TxnRequest, coordinator: str | None, newest: Producer = NOBODY) -> None:
        """Admits a request of the client that has the id. TxnError with the error for any other.

        ``coordinator``: the one that the client asked, as ``NewestConnections.admit``; None for requests that clients
        send over any number of connections. ``newest``: the identity that the id has by what else is known.
        CONCURRENT_TRANSACTIONS, for which clients retry, while ``is_unknown``: an InitProducerId has failed, or
        somebody decides by hand, and the log was not read for the client yet.
        """
        if self.is_unknown:
            raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, "this kproxy is still to read what the client has open")
        client = self.client
        if newest.producer_id == client.producer_id:
            client = max(client, newest)  # another instance may have given the id to a newer producer
        if request.client.producer_id != client.producer_id:
            raise TxnError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"producer id {request.client.producer_id}")
        if request.client.epoch > client.epoch:
            raise TxnError(ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {request.client.epoch} was never given")
        if request.client.epoch < client.epoch or self.is_fenced:
            raise self.replaced()
        self._connections.check(request.connection)
        if coordinator is not None:
            self._connections.admit(coordinator, request.connection)
        if not self.is_open:
            self._parties = set()
        self._parties.add(request.connection)
        if coordinator == COORDINATOR:
            self.is_left = False

    def is_foreign(self, request: TxnRequest, *, ends: bool = False) -> bool:
        """Whether a request has the identity of the producer, and comes from somebody else.

        ``ends``: it is an EndTxn. Without a login any host may send it: Flink commits after a restart from anywhere.
        """
        holder, whose = self.holder, request.holder
        if holder is None or whose is None or request.client != self.client:
            return False
        return holder != whose and bool(not ends or holder.principal or whose.principal)

    def may_be_behind(self, client: Producer) -> bool:
        """Whether another instance may have given the client an identity that is not known here yet."""
        is_former = client.producer_id == self.client.producer_id and client.epoch < self.client.epoch
        return client not in (self.client, NOBODY) and not is_former

    def is_ended_elsewhere(self, client: Producer, view: IdView, part: Producer | None) -> bool:
        """Whether the claim of another instance has ended what is open here, and the client that asks has the id.

        ``part``: the epoch of what is open. To continue here would acknowledge data that no commit of the other
        instance knows. A client that has no response to its last end has the id, too.
        """
        last = last_end(view)
        has_id = client == view.client or (last is not None and client == last.client)
        is_over = part is not None and view.verdict(part) is not Verdict.UNDECIDED
        return has_id and (client != self.client or (is_over and not self.state.is_pending))

    def replaced(self) -> TxnError:
        """The error for a client that was replaced."""
        self._fenced()
        return TxnError(ErrorCode.PRODUCER_FENCED, _FENCED)

    def parties(self) -> Collection[int]:
        """The connections of the open transaction; none if none is open."""
        return self._parties if self.is_open else ()

    def closed(self, connection: int) -> None:
        """Records that a client's connection has ended."""
        self.is_left |= self._connections.is_newest(COORDINATOR, connection)

    def refuse_older(self, than: int) -> None:
        """Refuses requests over older connections (``NewestConnections.refuse_older``)."""
        self._connections.refuse_older(than)

    def forget_connections(self) -> None:
        """The client has an identity that tells its requests from older ones."""
        self._connections.clear()
        self.is_left = False

    # -- at rest

    def pack(self) -> Plain | None:
        """State for ``unpack``; None while a transaction is open, or can only be aborted."""
        if self.is_open or self.doomed is not None:
            return None
        holder = self.holder and tuple(self.holder)
        rest = holder, self.is_fenced, self.acts_for_others, self.is_left, self._connections.pack()
        return self.state.value, tuple(self.client), *rest

    def unpack(self, packed: Plain) -> None:
        """Takes the state that ``pack`` returned."""
        state, client, holder, self.is_fenced, self.acts_for_others, self.is_left, connections = packed
        self.holder = holder and IdHolder(*holder)
        self.state, self.client = TransactionState(state), Producer(*client)
        self._connections.unpack(connections)

    # -- what a transaction takes

    def refuse_pending(self) -> None:
        """TxnError (CONCURRENT_TRANSACTIONS) while the outcome of an end is open."""
        if self.state.is_pending:
            raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is being decided")

    def refuse_doomed(self) -> None:
        """TxnError if the transaction can only be aborted."""
        if self.doomed is not None:
            raise self.doomed

    def refuse_growth(self) -> None:
        """TxnError if the transaction takes nothing more, or no other may begin."""
        self.refuse_doomed()
        self.refuse_pending()

    def doom(self, why: str) -> TxnError:
        """The transaction can only be aborted; the error that tells the client why."""
        self.doomed = TxnError(ErrorCode.TRANSACTION_ABORTABLE, why)
        return self.doomed

    def doom_unwritten(self, why: str) -> None:
        """Records that a batch of the open transaction was not written, unless it is doomed already."""
        if self.doomed is None:
            self.doom(why)

    def take_offsets(self, added: AddedGroups, offsets: TransactionOffsets, connection: int) -> None:
        """Offsets of the first protocol that count. TxnError if the transaction can only be aborted now."""
        self.doomed = added.receive(offsets, connection)
        self.refuse_doomed()

    # -- the end

    def repeated_end(self, request: TxnRequest, last: Ended | None, *, committed: bool) -> Producer | None:
        """The response to an EndTxn that is certain, and has raised the client's epoch; None if this is none.

        The client has not received it. TxnError (INVALID_TXN_STATE) if it asks for the other end. ``last`` as far as is
        known. May be asked at any time.
        """
        if last is None or not last.next_client == self.client != last.client == request.client:
            return None
        if last.committed is not committed:
            raise _ended_otherwise(last.committed)
        return last.next_client

    def begin_to_end(self, *, committed: bool) -> None:
        """An end of the client that has the id. TxnError if the transaction can only be aborted."""
        if committed:
            self.refuse_doomed()
        self.doomed = None

    def refuse_other_end(self, *, committed: bool) -> None:
        """TxnError (CONCURRENT_TRANSACTIONS) while the outcome of the opposite end is open."""
        if self.state.is_pending and self.may_be_committed is not committed:
            raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction is being decided otherwise")

    def end_nothing(self, *, committed: bool) -> None:
        """Ends nothing: nothing is open. TxnError (INVALID_TXN_STATE) if the last transaction has ended otherwise."""
        if self.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
            was_committed = self.state is TransactionState.COMPLETE_COMMIT
            if was_committed is not committed:
                raise _ended_otherwise(was_committed)


def not_added(what: str) -> TxnError:
    """The error of the first protocol for what was not added to the transaction: it may be late."""
    return TxnError(ErrorCode.INVALID_TXN_STATE, f"{what} was not added to the transaction")


def _ended_otherwise(committed: bool) -> TxnError:
    return TxnError(ErrorCode.INVALID_TXN_STATE, f"the last transaction was {'committed' if committed else 'aborted'}")
