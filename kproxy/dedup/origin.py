"""A client's connection as far as the records that it leaves unconfirmed need to know of it."""

from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Final, NamedTuple


class Software(NamedTuple):
    """Name and version of a client's software (KIP-511); empty if the client has not said."""

    name: str = ""
    version: str = ""


UNNAMED: Final = Software()


class Silence(NamedTuple):
    """A time in which a client sent nothing, before what it sends now; in seconds."""

    since: float
    until: float


#: The client has not been silent yet.
NO_SILENCE: Final = Silence(inf, 0.0)


@dataclass(slots=True, eq=False)
class Origin:
    """One connection of a producer. Times are in seconds since the epoch."""

    software: Software = UNNAMED
    #: The user has declared that something between ends TCP: for so long an end in good order proves nothing.
    clean_window: float = 0.0
    #: The broker that its requests go to; -1 if there is none.
    node_id: int = -1
    #: When it was accepted.
    opened_at: float = 0.0
    #: When its first request was read, and the time after which the one at hand has surely arrived.
    first_at: float = inf
    asked_at: float = 0.0
    #: When its last request was accepted.
    used_at: float = 0.0
    #: When the newest response was given that the client's kernel has acknowledged.
    heard_at: float = 0.0
    #: When a request came that no end has followed, though a newer connection had been opened: it was in use then.
    open_at: float = 0.0
    #: The client has closed it.
    ended: bool = False

    @property
    def is_direct(self) -> bool:
        """Whether acknowledgements are those of the client's own kernel."""
        return not self.clean_window


#: Of what a former kproxy, or another instance, has written.
ELSEWHERE: Final = Origin(ended=True)


@cache
def elsewhere(clean_window: float) -> Origin:
    """The ``ELSEWHERE`` of clients with this ``clean_window``: one for all batches, of which there may be thousands."""
    return Origin(clean_window=clean_window, ended=True) if clean_window else ELSEWHERE
