"""How much the connections of a process do between two looks of the loop at all of them."""

from typing import Final

import trio

#: Bytes of messages that are decoded and encoded in a turn, all connections together; about 50 ms.
TURN_BYTES: Final = 65_536
#: One read may hold ten thousand messages: after so many, about 3 ms, a connection waits for another turn.
TURN_FRAMES: Final = 32
#: What is no longer is not counted: it takes about 2 ms at most.
FREE_BYTES: Final = 4096


class Turns:
    """Counts work before it is done. What does not fit into this turn of the loop waits for one of the next, in order.

    A single piece of work is done however large it is: what takes long belongs beside the loop (``long_work``).
    """

    def __init__(self) -> None:
        """Nothing was done yet."""
        self._spent = 0
        self._queue = trio.Lock()

    def fits(self, effort: int) -> bool:
        """Whether work of so many bytes may be done at once; it is counted then."""
        if effort <= FREE_BYTES:
            return True
        if self._queue.locked() or (self._spent and self._spent + effort > TURN_BYTES):
            return False
        self._spent += effort
        return True

    async def wait(self, effort: int = TURN_BYTES) -> None:
        """Waits until the loop has looked at its connections, and it is the turn of this work."""
        async with self._queue:  # to get it takes a look of the loop at least
            self._spent = effort
