"""What the control API and the status page ask of what is running."""

from typing import Protocol

from kproxy.proxy.facts import BrokerFact, ClientFact, FleetFact, LaneFact, Rows, Status


class FactSource(Protocol):
    """Reads the current state and changes nothing."""

    def status(self) -> Status: ...

    def clients(self, client_id: str | None = None) -> Rows[ClientFact]:
        """One row for each client, the busiest first; of ``client_id`` alone, if it is given."""
        ...

    def lanes(self) -> Rows[LaneFact]:
        """One row for each producer id, those that wait for something first."""
        ...

    async def fleet(self) -> FleetFact:
        """All instances that announce themselves. OSError, with the reason, if their announcements are unreadable."""
        ...

    def brokers(self) -> Rows[BrokerFact]:
        """One row for each broker that was ever named."""
        ...
