"""Records by address whether brokers answer kproxy, and if not, since when and why."""

from collections.abc import Callable, Collection
from typing import NamedTuple

from kproxy.proxy.routing import Address


class Silence(NamedTuple):
    """A broker that has not answered since an attempt failed; times in seconds since the epoch."""

    since: float
    #: Of the last attempt.
    error: str
    at: float


class Contacts:
    """The brokers that do not answer; all others answered when they were asked last, or were not asked yet."""

    def __init__(self, wall: Callable[[], float], fell_silent: Callable[[], None]) -> None:
        """``wall``: the time of day in seconds since the epoch.

        ``fell_silent`` is called when the first attempt fails after an answer.
        """
        self._wall = wall
        self._fell_silent = fell_silent
        self._silent: dict[Address, Silence] = {}

    def answered(self, address: Address) -> None:
        """Records that a broker has answered."""
        self.forget(address)

    def forget(self, address: Address) -> None:
        """Removes what is known of an address at which no broker is expected any more."""
        self._silent.pop(address, None)

    def failed(self, address: Address, error: Exception) -> None:
        """Records that a broker did not answer, and why."""
        known, now = self._silent.get(address), self._wall()
        self._silent[address] = Silence(now if known is None else known.since, str(error), now)
        if known is None:
            self._fell_silent()

    def silence(self, address: Address) -> Silence | None:
        """The time since which a broker does not answer, and why; None if it answered when it was asked last."""
        return self._silent.get(address)

    def silent(self, addresses: Collection[Address]) -> list[Silence]:
        """Those of ``addresses`` that do not answer."""
        return [self._silent[address] for address in addresses if address in self._silent]
