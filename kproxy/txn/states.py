"""The states of a transaction and what leads from one to the next (KIP-98; Kafka's ``TransactionState``).

verification/corners/transactions.md draws its diagram from ``TRANSITIONS``. What is missing there may not happen.
"""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType

from kproxy.errors import LocalProtocolError


class TransactionState(Enum):
    """States of a transaction, with Kafka's names (``TransactionState.name``)."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"

    @property
    def is_pending(self) -> bool:
        """Whether a decision is in flight: no other request is admitted meanwhile."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class TransactionEvent(Enum):
    """An event of a transaction."""

    BEGAN = auto()
    """Its first partitions or offsets are in the log."""
    COMMIT_ASKED = auto()
    ABORT_ASKED = auto()
    COMMITTED = auto()
    """The log shows the decision."""
    ABORTED = auto()
    """The log shows the decision, or a claim above."""
    REFUSED = auto()
    """The broker decides, and has refused the end that was asked for."""
    PREPARED = auto()
    """The log shows that it waits for its owner's decision; another may begin."""
    INITIALIZED = auto()
    """A claim for a client that begins."""
    EXPIRED = auto()


TRANSITIONS: Mapping[tuple[TransactionState, TransactionEvent], TransactionState] = MappingProxyType(
    {
        (TransactionState.EMPTY, TransactionEvent.BEGAN): TransactionState.ONGOING,
        (TransactionState.COMPLETE_COMMIT, TransactionEvent.BEGAN): TransactionState.ONGOING,
        (TransactionState.COMPLETE_ABORT, TransactionEvent.BEGAN): TransactionState.ONGOING,
        (TransactionState.ONGOING, TransactionEvent.COMMIT_ASKED): TransactionState.PREPARE_COMMIT,
        (TransactionState.ONGOING, TransactionEvent.ABORT_ASKED): TransactionState.PREPARE_ABORT,
        (TransactionState.ONGOING, TransactionEvent.ABORTED): TransactionState.COMPLETE_ABORT,
        (TransactionState.ONGOING, TransactionEvent.PREPARED): TransactionState.EMPTY,
        (TransactionState.PREPARE_COMMIT, TransactionEvent.COMMITTED): TransactionState.COMPLETE_COMMIT,
        (TransactionState.PREPARE_COMMIT, TransactionEvent.ABORTED): TransactionState.COMPLETE_ABORT,
        (TransactionState.PREPARE_ABORT, TransactionEvent.ABORTED): TransactionState.COMPLETE_ABORT,
        (TransactionState.PREPARE_COMMIT, TransactionEvent.REFUSED): TransactionState.ONGOING,
        (TransactionState.PREPARE_ABORT, TransactionEvent.REFUSED): TransactionState.ONGOING,
        (TransactionState.EMPTY, TransactionEvent.INITIALIZED): TransactionState.EMPTY,
        (TransactionState.COMPLETE_COMMIT, TransactionEvent.INITIALIZED): TransactionState.EMPTY,
        (TransactionState.COMPLETE_ABORT, TransactionEvent.INITIALIZED): TransactionState.EMPTY,
        (TransactionState.EMPTY, TransactionEvent.EXPIRED): TransactionState.DEAD,
        (TransactionState.COMPLETE_COMMIT, TransactionEvent.EXPIRED): TransactionState.DEAD,
        (TransactionState.COMPLETE_ABORT, TransactionEvent.EXPIRED): TransactionState.DEAD,
    }
)


def next_state(state: TransactionState, event: TransactionEvent) -> TransactionState:
    """The state after an event; LocalProtocolError if the event is not allowed in this state."""
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise LocalProtocolError(f"{event.name} in state {state.value}")
    return found
