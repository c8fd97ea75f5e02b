"""Answers leave a connection in the order in which its requests came, whatever order they get ready in."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from kproxy.budget import Share
from kproxy.dedup.unconfirmed import PendingProduce
from kproxy.proxy.traces import Traced

Buffer: TypeAlias = bytes | bytearray | memoryview

#: What a request costs beside its bytes: else a flood of tiny ones would be held by the hundred thousand.
SLOT_BYTES: Final = 1024
#: What an element of an array costs when its request is decoded, as an object with a short string.
ELEMENT_BYTES: Final = 256
#: The same of a response: a partition with its lists of replicas.
RESPONSE_ELEMENT_BYTES: Final = 512


@dataclass(slots=True, eq=False)
class Slot:
    """One request's place in the order of responses."""

    api_key: int
    api_version: int
    correlation_id: int
    #: When it came, in seconds of the shell's clock.
    since: float
    #: Bytes that are held for it until it is answered.
    size: int
    #: Bytes that are held beside these, since the request is decoded.
    more: int = 0
    #: The same since its response is decoded.
    decoded: int = 0
    #: acks=0: its turn comes, but nothing is written.
    silent: bool = False
    answer: Sequence[Buffer] | None = None
    #: What is noted of a Produce request until its client surely has received the response.
    owed: PendingProduce | None = None
    #: Bytes of the response that went to the client while they came.
    streamed: int = 0
    #: What has to be done to the response before it leaves.
    finish: Callable[[bytes], bytes] | None = None
    #: Parts of the request that ``finish`` may answer, or that were refused with all of it.
    parts: int = 0
    #: Its attributes in a trace; None if it is not traced, or nothing is known.
    traced: Traced | None = None
    #: There is no response: the connection ends when its turn comes.
    failed: bool = False


class AnswerOrder:
    """The slots of a connection, oldest first."""

    __slots__ = ("_share", "_slots")

    def __init__(self, share: Share) -> None:
        """``share`` counts the bytes that are held for all slots, what they cost themselves included."""
        self._slots: deque[Slot] = deque()
        self._share = share

    def __len__(self) -> int:
        return len(self._slots)

    def open(self, slot: Slot) -> None:
        """Adds the slot of a request that just came."""
        self._slots.append(slot)
        self._share.held += slot.size + SLOT_BYTES

    def charge(self, slot: Slot, count: int) -> None:
        """Counts so many more bytes as held until an open slot is answered."""
        slot.more += count
        self._share.held += count

    def decoded(self, slot: Slot, count: int) -> None:
        """Counts so many bytes as held for the response to an open slot, in place of what was counted before."""
        self._share.held += count - slot.decoded
        slot.decoded = count

    def is_next(self, slot: Slot) -> bool:
        """Whether this slot's response is the next to be written."""
        return bool(self._slots) and self._slots[0] is slot

    def take_ready(self) -> list[Slot]:
        """The answered slots at the front: to be written now, in this order."""
        ready: list[Slot] = []
        slots = self._slots
        while slots and slots[0].answer is not None:
            slot = slots.popleft()
            self._share.held -= slot.size + slot.more + slot.decoded + SLOT_BYTES
            ready.append(slot)
        return ready

    def drop(self) -> None:
        """Frees all slots, answered or not."""
        self._slots.clear()
        self._share.held = 0
