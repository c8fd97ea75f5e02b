"""The memory that responses to kproxy's own requests hold together, whichever brokers send them."""

from typing import Final

from kproxy.budget import RequestBudget, standalone
from kproxy.config import Config
from kproxy.net.budget import Budget
from kproxy.proxy.slots import RESPONSE_ELEMENT_BYTES

#: The longest response that is ever taken on a connection of kproxy's own, in bytes.
LARGEST_RESPONSE: Final = 1 << 26
#: What is this short is not counted: a read from the network is no longer.
_UNCOUNTED: Final = 65_536


class ResponseRoom:
    """Counts long responses from their first bytes until they are decoded.

    They are apart from what clients hold: a request of a client may wait for one, and would then wait for itself. While
    the room is full one response is read on, the eldest, and the others wait. So all of them hold at most a quarter of
    ``buffer.memory`` and one response.
    """

    def __init__(self, memory: int = Config.buffer_memory, longest_frame: int = LARGEST_RESPONSE) -> None:
        """``memory``: ``buffer.memory``; ``longest_frame``: ``max.frame.bytes``; both in bytes."""
        #: The longest response, in bytes.
        self.largest = min(LARGEST_RESPONSE, longest_frame)
        self._elements = memory // RESPONSE_ELEMENT_BYTES
        self._budget = Budget(memory // 4)

    @classmethod
    def of(cls, config: Config) -> "ResponseRoom":
        """The room that a process has with these options."""
        return cls(config.buffer_memory, config.max_frame_bytes)

    @property
    def used(self) -> int:
        """Bytes that are held now."""
        return self._budget.used

    async def admit(self, reader: object, held: int) -> None:
        """Notes that ``reader`` holds so many bytes of a response, and waits until it may read more."""
        if held > _UNCOUNTED:
            self._budget.hold(reader, held)
            await self._budget.admit(reader)

    def release(self, reader: object) -> None:
        """Notes that ``reader`` holds no response any more."""
        self._budget.hold(reader, 0)

    def decoding(self) -> RequestBudget:
        """The budget of one response: its objects take at most a half of ``buffer.memory``, or 60 MB."""
        return standalone(self._elements)
