"""How much the connections of a process do between two looks of the loop at all of them."""

import trio

from kproxy.budget import AT_ONCE_STEPS, Where, where


class Turns:
    """Counts work before it is done. What does not fit into this turn of the loop waits for one of the next, in order.

    A single piece of work is done however large it is: what takes long belongs beside the loop (``long_work``).
    """

    def __init__(self) -> None:
        """Nothing was done yet."""
        self._spent = 0
        self._queue = trio.Lock()

    def fits(self, steps: int) -> bool:
        """Whether work of so many steps may be done at once; it is counted then."""
        if where(steps) is Where.AT_ONCE:
            return True
        if self._queue.locked() or (self._spent and self._spent + steps > AT_ONCE_STEPS):
            return False
        self._spent += steps
        return True

    async def wait(self, steps: int = AT_ONCE_STEPS) -> None:
        """Waits until the loop has looked at its connections, and it is the turn of this work."""
        async with self._queue:  # to get it takes a look of the loop at least
            self._spent = steps
