"""For how long a client could have sent something: while kproxy does not read from it, its silence is not its fault."""


class ClientTime:
    """Counts the seconds in which kproxy waits for a client's bytes. All times are trio's."""

    __slots__ = ("_total", "since")

    def __init__(self) -> None:
        """No wait yet."""
        self._total = 0.0
        #: Since when kproxy has waited; None while it does something else.
        self.since: float | None = None

    def begin(self, now: float) -> None:
        """From now on it is for the client to send."""
        self.since = now

    def end(self, now: float) -> float:
        """Ends the wait; returns how long it lasted."""
        assert self.since is not None
        waited = now - self.since
        self._total += waited
        self.since = None
        return waited

    def seconds(self, now: float) -> float:
        """All waits so far, with the present one."""
        return self._total if self.since is None else self._total + now - self.since
