"""What a kproxy has to wait for that takes over from another of the same instance.id."""

from collections.abc import Mapping

import trio


class Succession:
    """The steps of a hand-over; without one all of them are taken at the beginning."""

    def __init__(self, ports: Mapping[int, int] | None = None) -> None:
        """``ports``: those of the brokers, by id, at the kproxy that is to be replaced; None: there is none."""
        #: The port that each broker had there; clients know it.
        self.ports = ports or {}
        self._accepts = trio.Event()
        self._alone = trio.Event()
        if ports is None:
            self.taken()
            self.ended()

    def taken(self) -> None:
        """The other one accepts nobody any more."""
        self._accepts.set()

    def ended(self) -> None:
        """The other process has ended."""
        self._alone.set()

    async def may_accept(self) -> None:
        """Returns when clients may be accepted here."""
        await self._accepts.wait()

    async def alone(self) -> None:
        """Returns when no other process has the instance.id: before, neither producer ids nor claims are its own."""
        await self._alone.wait()
