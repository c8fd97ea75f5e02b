"""What the control API and the status page ask of what is running."""

from collections.abc import Sequence
from typing import Protocol

from kproxy.proxy.facts import BrokerFact, ClientFact, LaneFact, Status


class FactSource(Protocol):
    """Looks and changes nothing; each answer is of the moment."""

    def status(self) -> Status:
        """The whole in short."""
        ...

    def clients(self) -> Sequence[ClientFact]:
        """One row for each client, the busiest first."""
        ...

    def lanes(self) -> Sequence[LaneFact]:
        """One row for each producer id, those that wait for something first."""
        ...

    def brokers(self) -> Sequence[BrokerFact]:
        """One row for each broker that was ever named."""
        ...
