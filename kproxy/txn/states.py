"""The states of a transaction and what leads from one to the next (KIP-98; Kafka's ``TransactionState``).

docs/transactions-advanced.md draws its diagram from ``TRANSITIONS``. What is missing there may not happen.
"""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType

from kproxy.errors import LocalProtocolError


class State(Enum):
    """As Kafka names them (``TransactionState.name``)."""

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
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)


class Event(Enum):
    """What happens to a transaction."""

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


TRANSITIONS: Mapping[tuple[State, Event], State] = MappingProxyType(
    {
        (State.EMPTY, Event.BEGAN): State.ONGOING,
        (State.COMPLETE_COMMIT, Event.BEGAN): State.ONGOING,
        (State.COMPLETE_ABORT, Event.BEGAN): State.ONGOING,
        (State.ONGOING, Event.COMMIT_ASKED): State.PREPARE_COMMIT,
        (State.ONGOING, Event.ABORT_ASKED): State.PREPARE_ABORT,
        (State.ONGOING, Event.ABORTED): State.COMPLETE_ABORT,
        (State.ONGOING, Event.PREPARED): State.EMPTY,
        (State.PREPARE_COMMIT, Event.COMMITTED): State.COMPLETE_COMMIT,
        (State.PREPARE_COMMIT, Event.ABORTED): State.COMPLETE_ABORT,
        (State.PREPARE_ABORT, Event.ABORTED): State.COMPLETE_ABORT,
        (State.PREPARE_COMMIT, Event.REFUSED): State.ONGOING,
        (State.PREPARE_ABORT, Event.REFUSED): State.ONGOING,
        (State.EMPTY, Event.INITIALIZED): State.EMPTY,
        (State.COMPLETE_COMMIT, Event.INITIALIZED): State.EMPTY,
        (State.COMPLETE_ABORT, Event.INITIALIZED): State.EMPTY,
        (State.EMPTY, Event.EXPIRED): State.DEAD,
        (State.COMPLETE_COMMIT, Event.EXPIRED): State.DEAD,
        (State.COMPLETE_ABORT, Event.EXPIRED): State.DEAD,
    }
)


def next_state(state: State, event: Event) -> State:
    """The state after an event; LocalProtocolError if the event is not allowed in this state."""
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise LocalProtocolError(f"{event.name} in state {state.value}")
    return found
