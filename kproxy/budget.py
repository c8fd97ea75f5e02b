"""What one message may cost, reserved before the work is done; and the one rule that says where work is done.

A ``RequestBudget`` belongs to a request of a client, or to a response of a broker to one. It is made of its peer's
``Share``, and what a share holds counts in what the process holds (``kproxy.net.budget``). Each amount is bounded:

- *elements* of arrays that are decoded (``request.max.elements``; for a response ``buffer.memory``): each takes memory;
- *bytes* of records that are decompressed (``decompression.max.bytes``);
- *steps*: time. The costs below say how many a piece of work takes.

``where`` says by its steps whether work is done at once, in the next turn of the event loop, or beside the loop.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Generic, Protocol, TypeVar

from kproxy.errors import RemoteProtocolError

T = TypeVar("T")

# What work costs, in steps of about 0.1 us on a core of 3 GHz -------------------------------------------------------

#: One array element: to decode it, and to encode it again.
ELEMENT_STEPS: Final = 50
#: One byte of a message whose elements are not counted yet; and one frame, whatever is in it.
MESSAGE_BYTE_STEPS: Final = 4
FRAME_STEPS: Final = 1024
#: One byte of a request that is compared with the rules of ``acl.file``; and one partition of a Produce request.
SCREENED_BYTE_STEPS: Final = 16
SCREENED_PARTITION_STEPS: Final = 256
#: One record that is converted from or to an old format.
CONVERTED_RECORD_STEPS: Final = 10
#: One byte of records that are converted for a consumer.
CONVERTED_BYTE_STEPS: Final = 2
#: One step for so many bytes of record sets of which records are read or converted, beside what each record costs.
RECORD_SET_BYTES_IN_STEP: Final = 4
#: One record that is read, to be compared.
READ_RECORD_STEPS: Final = 50
#: One unconfirmed record that is searched; and one record that is matched alone, since equal ones are among them.
SEARCHED_RECORD_STEPS: Final = 1
MATCHED_RECORD_STEPS: Final = 70
#: One batch of a Fetch response that is looked through.
BATCH_STEPS: Final = 174

# What may be done where ----------------------------------------------------------------------------------------------

#: What is done between two looks of the loop at all connections: about 26 ms.
AT_ONCE_STEPS: Final = 1 << 18
_AT_ONCE_ELEMENTS: Final = AT_ONCE_STEPS // ELEMENT_STEPS
#: What is no longer is done at once, uncounted: 2 ms at most.
FREE_STEPS: Final = AT_ONCE_STEPS >> 4
#: The same in bytes of a message: nearly all are shorter, and nothing is computed for them.
FREE_BYTES: Final = FREE_STEPS // MESSAGE_BYTE_STEPS
#: Frames of one connection that are taken in a turn, however short they are: an eighth of it, so others have theirs.
TURN_FRAMES: Final = (AT_ONCE_STEPS >> 3) // FRAME_STEPS
#: Decompressed bytes of what is done at once.
AT_ONCE_BYTES: Final = 1 << 20
#: So many times as much is done on the loop of what can't be done beside it, since it changes what connections share.
_ON_LOOP: Final = 4
#: The most that is done for one message, wherever that is: 0.5 s.
MOST_STEPS: Final = 5_000_000
#: Array elements of one message of which nothing else is known: about 60 MB as objects.
MOST_ELEMENTS: Final = 1 << 17
#: More than any message has.
UNLIMITED: Final = 1 << 62


class Where(Enum):
    """Where a piece of work is done."""

    #: It is short.
    AT_ONCE = auto()
    #: In the next turn of the event loop that has room for it (``kproxy.net.turns``).
    IN_TURN = auto()
    #: In another thread, while the loop serves others (``kproxy.net.long_work``).
    BESIDE = auto()


def is_long(steps: int) -> bool:
    """Whether work of so many steps is done beside the loop."""
    return steps > AT_ONCE_STEPS


def where(steps: int) -> Where:
    """Where work of so many steps is done."""
    if is_long(steps):
        return Where.BESIDE
    return Where.AT_ONCE if steps <= FREE_STEPS else Where.IN_TURN


class UsedUp(RemoteProtocolError):
    """A message needs more than its budget has left."""


class TooManyElements(UsedUp):
    """A message has more array elements and tagged fields than are decoded for it."""

    refusal = "elements"


class TooManySteps(UsedUp):
    """A message would take longer than is allowed for it."""


@dataclass(slots=True)
class RequestBudget:
    """What is left for one message. An amount is taken from it before the work is done that needs it."""

    #: Array elements and tagged fields that may be decoded.
    elements: int
    #: Bytes of records that may be decompressed.
    bytes: int
    steps: int
    #: It is a part: work that needs more than this part has is done with the whole budget, elsewhere.
    is_part: bool = False
    #: How many array elements were taken.
    taken_elements: int = 0

    def take_elements(self, count: int) -> None:
        """Takes so many array elements. Raises TooManyElements, and takes none, if fewer are left."""
        left = self.elements - count
        if left < 0:
            raise TooManyElements("too many array elements in one message (requests: request.max.elements)")
        self.elements = left
        self.taken_elements += count

    def take_bytes(self, count: int) -> None:
        """Takes so many decompressed bytes: ``bytes`` bounded them when they were decompressed."""
        self.bytes = max(0, self.bytes - count)

    def take_steps(self, count: int) -> bool:
        """Takes so many steps, and returns whether they were left; if not, none is taken."""
        if count > self.steps:
            return False
        self.steps -= count
        return True

    def at_once(self) -> "RequestBudget":
        """The part for work that is done at once, and beside the loop if the part is used up; or the same."""
        most, most_bytes, most_steps = self.elements, self.bytes, self.steps
        if most <= _AT_ONCE_ELEMENTS and most_bytes <= AT_ONCE_BYTES and most_steps <= AT_ONCE_STEPS:
            return RequestBudget(most, most_bytes, most_steps)
        return RequestBudget(
            most if most < _AT_ONCE_ELEMENTS else _AT_ONCE_ELEMENTS,
            most_bytes if most_bytes < AT_ONCE_BYTES else AT_ONCE_BYTES,
            most_steps if most_steps < AT_ONCE_STEPS else AT_ONCE_STEPS,
            True,
        )

    def on_loop(self) -> "RequestBudget":
        """What else may be done on the loop, of work that can't be done beside it; what exceeds it is left undone.

        It is apart from the steps beside the loop, since it has another purpose: others wait meanwhile.
        """
        return RequestBudget(self.elements, _ON_LOOP * AT_ONCE_BYTES, _ON_LOOP * AT_ONCE_STEPS)


class Work(Generic[T]):
    """Work whose cost shows only when it is done: at once where a part of the budget suffices, else beside the loop."""

    __slots__ = ("_do", "_found", "_steps", "budget")

    def __init__(self, budget: RequestBudget, do: Callable[[RequestBudget], T], steps: int = 0) -> None:
        """``do`` may be called by another thread, and again after UsedUp. ``steps``: what it costs at least."""
        self.budget = budget
        self._do = do
        self._steps = steps
        self._found: tuple[T] | None = None

    def at_once(self) -> bool:
        """Whether it is done: it was before, or that is short."""
        if self._found is None and not is_long(self._steps):
            part = self.budget.at_once()
            try:
                self._found = (self._do(part),)
            except UsedUp:
                if not part.is_part:
                    raise
        return self._found is not None

    def whole(self) -> None:
        """Does it, however long that takes; may be called by another thread."""
        self._found = (self._do(self.budget),)

    @property
    def found(self) -> T:
        """What ``do`` returned."""
        assert self._found is not None
        return self._found[0]


class Limits(Protocol):
    """What is configured of budgets (``kproxy.proxy.context.Policy``)."""

    @property
    def max_request_elements(self) -> int:
        """Array elements that a request may have, other than Produce."""

    @property
    def max_response_elements(self) -> int:
        """Array elements that a response of a broker may have."""

    @property
    def max_decompressed_bytes(self) -> int:
        """Bytes of records of one message, decompressed."""


@dataclass(slots=True)
class Share:
    """What one peer, a connection, has of the process: it makes the budgets of its messages, and counts what they hold.

    The shell adds what a share holds to what all connections hold, and to the part of their sender
    (``kproxy.net.budget``). It reads no more from a peer while the share, that part or the whole is full.
    """

    limits: Limits
    #: Bytes that requests without a response hold: as they came, decoded, and their responses decoded.
    held: int = 0

    def of_request(self) -> RequestBudget:
        """The budget of a request of the client."""
        return RequestBudget(self.limits.max_request_elements, self.limits.max_decompressed_bytes, MOST_STEPS)

    def of_response(self) -> RequestBudget:
        """The budget of a response of the broker."""
        return RequestBudget(self.limits.max_response_elements, self.limits.max_decompressed_bytes, MOST_STEPS)


def standalone(most_elements: int = MOST_ELEMENTS) -> RequestBudget:
    """The budget of a message outside of a client's connection, of which nothing is known: at most about 60 MB."""
    return RequestBudget(min(most_elements, MOST_ELEMENTS), UNLIMITED, MOST_STEPS)


def unbounded() -> RequestBudget:
    """The budget of a message that a trusted program wrote: kproxy itself, or a test."""
    return RequestBudget(UNLIMITED, UNLIMITED, UNLIMITED)
