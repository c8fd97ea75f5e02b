"""The states of a client's connection, and what leads from one to the next.

::

      SERVING  <-- STAYS / DRAINS -->  DRAINING
         |                                |
         +---------- HAS_TO_END ----------+
                         |
                         v
                      ENDING  -- LOGIN_LOST -->  FORSAKEN     (LOGIN_LOST leads there from the others, too)
                         |                          |
                         +--------- ENDED ----------+
                                     |
                                     v
                                   ENDED                      (ENDED leads there from the others, too)
"""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType


class ConnectionState(Enum):
    """What is done for a client. Whether the client is still there is known by its ``ByteIO``."""

    SERVING = auto()
    DRAINING = auto()
    """No further request is read; the connection ends when all that were read are answered, or it stays after all."""
    ENDING = auto()
    """No further request is taken; the connection ends when what is answered is written."""
    FORSAKEN = auto()
    """As ENDING, and nothing is sent again: the client had logged in at the broker, on a connection that has ended, and
    as itself kproxy must not send what may have been refused to the client. A retry is compared with the log."""
    ENDED = auto()
    """Nobody receives a response any more."""

    def __init__(self, _: int) -> None:
        """Attributes, since each request asks for them, and to name a member takes Python 3.11 longer."""
        self.is_draining: bool = self._name_ == "DRAINING"
        #: Nothing more is taken of what the client has sent.
        self.has_to_end: bool = self._name_ in ("ENDING", "FORSAKEN")


class ConnectionEvent(Enum):
    """What happens to a connection."""

    DRAINS = auto()
    """The process is about to end."""
    STAYS = auto()
    """The client takes part in a transaction that is decided first."""
    HAS_TO_END = auto()
    """The session cannot answer a request, or it is no longer for this connection to send its batches."""
    LOGIN_LOST = auto()
    ENDED = auto()


TRANSITIONS: Mapping[tuple[ConnectionState, ConnectionEvent], ConnectionState] = MappingProxyType(
    {
        (ConnectionState.SERVING, ConnectionEvent.DRAINS): ConnectionState.DRAINING,
        (ConnectionState.DRAINING, ConnectionEvent.STAYS): ConnectionState.SERVING,
        (ConnectionState.SERVING, ConnectionEvent.HAS_TO_END): ConnectionState.ENDING,
        (ConnectionState.DRAINING, ConnectionEvent.HAS_TO_END): ConnectionState.ENDING,
        (ConnectionState.SERVING, ConnectionEvent.LOGIN_LOST): ConnectionState.FORSAKEN,
        (ConnectionState.DRAINING, ConnectionEvent.LOGIN_LOST): ConnectionState.FORSAKEN,
        (ConnectionState.ENDING, ConnectionEvent.LOGIN_LOST): ConnectionState.FORSAKEN,
        (ConnectionState.SERVING, ConnectionEvent.ENDED): ConnectionState.ENDED,
        (ConnectionState.DRAINING, ConnectionEvent.ENDED): ConnectionState.ENDED,
        (ConnectionState.ENDING, ConnectionEvent.ENDED): ConnectionState.ENDED,
        (ConnectionState.FORSAKEN, ConnectionEvent.ENDED): ConnectionState.ENDED,
    }
)


def next_state(state: ConnectionState, event: ConnectionEvent) -> ConnectionState:
    """The state after an event; the same state if the event is not in ``TRANSITIONS``: it came too late."""
    return TRANSITIONS.get((state, event), state)
