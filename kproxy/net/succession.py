"""What a kproxy has to wait for that takes over from another of the same instance.id."""

from collections.abc import Mapping

import trio


class Succession:
    """The steps of a hand-over; without one all of them are taken at the beginning."""

    def __init__(self, ports: Mapping[int, int] | None = None, *, replaces: bool = False, claims: bool = False) -> None:
        """``ports``: those of the brokers, by id, at the kproxy that is to be replaced; None: there is none.

        ``replaces``: a process that is alive and has the same instance.id is ended, wherever it runs. ``claims``: it
        takes a note in the log to have the instance.id (``named``).
        """
        self.replaces = replaces
        #: The port that each broker had there; clients know it.
        self.ports = ports or {}
        self._accepts = trio.Event()
        self._departed, self._named = trio.Event(), trio.Event()
        if not claims:
            self.named()
        if ports is None:
            self.taken()
            self.ended()

    def taken(self) -> None:
        """The other one accepts nobody any more."""
        self._accepts.set()

    def ended(self) -> None:
        """The other process has ended."""
        self._departed.set()

    def named(self) -> None:
        """No other process has the instance.id."""
        self._named.set()

    async def may_accept(self) -> None:
        """Returns when clients may be accepted here."""
        await self._accepts.wait()

    async def departed(self) -> None:
        """Returns when the process that hands over has ended."""
        await self._departed.wait()

    async def alone(self) -> None:
        """Returns when no other process has the instance.id: before, neither producer ids nor claims are its own."""
        await self._departed.wait()
        await self._named.wait()
