"""A member of a classic consumer group and the group's committed offsets: plain data."""

from dataclasses import dataclass, field
from typing import NamedTuple


class CommittedOffset(NamedTuple):
    """What a group committed for one partition."""

    offset: int
    leader_epoch: int
    metadata: str | None


@dataclass(slots=True)
class Member:
    """One member; ``joined`` and ``synced`` say that its JoinGroup or SyncGroup waits for the others."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    last_seen: int
    protocols: list[tuple[str, bytes]] = field(default_factory=list)
    joined: bool = False
    synced: bool = False
    assignment: bytes = b""

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata under a protocol; empty when it does not speak it."""
        return dict(self.protocols).get(protocol, b"")

    def expired(self, now: int) -> bool:
        """Return whether the session has expired; a member whose request waits is alive by definition."""
        return not (self.joined or self.synced) and now - self.last_seen >= self.session_timeout_ms
