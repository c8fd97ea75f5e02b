"""The clients whose numbers are kept, and the owners of these numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kproxy.dedup.kept.ids import GivenIds, is_given
from kproxy.dedup.kept.producers import KeptProducers
from kproxy.dedup.retry_rules import is_among


@dataclass(slots=True)
class KeptClients:
    """Kept producers of a process, which all of its connections share."""

    #: idempotent.clients
    patterns: Sequence[str] = ()
    #: Clients may move between instances (fleet.retries.enable): what this process has answered is not all that they
    #: have received.
    may_move: bool = False
    #: None where there is no secret: producers receive the broker's own ids, and are relayed.
    ids: GivenIds | None = None
    #: It is not known yet whether there is one.
    awaits_secret: bool = True
    #: The broker's ids leave no room for a mark, so that any id may be one of the broker's: all are relayed.
    has_room: bool = True
    producers: KeptProducers = field(default_factory=KeptProducers)

    def learns(self, secret: bytes) -> None:
        """Takes the secret that all instances have, and no client; empty or zeros: there is none."""
        self.awaits_secret = False
        if any(secret):
            self.ids = GivenIds(secret)

    def sees(self, producer_id: int) -> None:
        """Takes an id that a broker has assigned to any client: whether it leaves room for a mark."""
        if is_given(producer_id):
            self.has_room = False

    def give(self, producer_id: int, owner: bytes) -> int:
        """The id to give to a producer, of the one that the broker assigned."""
        given = None if self.ids is None else self.ids.given(producer_id, owner)
        return producer_id if given is None else given

    def matches(self, client_id: str) -> bool:
        """Whether the numbers of a client are to be kept from its next producer id on."""
        return is_among(client_id, self.patterns)

    @staticmethod
    def owner(principal: str, client_id: str, host: str) -> bytes:
        """The owner of a producer id: the principal, or client.id and host of a client that has not logged in."""
        if principal:
            return b"principal\0" + principal.encode()
        return b"client\0" + client_id.encode() + b"\0" + host.encode()
