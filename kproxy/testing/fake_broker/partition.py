"""One partition and its replicas: leader, replicas in sync, high watermark, and what an election loses.

All replicas share one log, which is the leader's. A replica that does not follow is known by how far it had copied; it
can only ever hold the beginning of the log, so that electing it means to cut the log there.
"""

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

from kproxy.testing.fake_broker.partition_log import PartitionLog

NO_LEADER: Final = -1


@dataclass(slots=True)
class Partition:
    """One partition.

    :param isr: the in-sync replicas; all of them when omitted.
    :param min_isr: ``min.insync.replicas``; a topic with fewer replicas needs all of them only (KIP-966).
    """

    index: int
    log: PartitionLog
    replicas: list[int]
    leader: int
    leader_epoch: int = 0
    isr: list[int] = field(default_factory=list)
    min_isr: int = 1
    eligible: list[int] = field(default_factory=list)
    """Replicas that left when too few were in sync: they hold all that was acknowledged (the ELR of KIP-966)."""
    _copied: dict[int, int] = field(default_factory=dict)
    """The log end of each replica that does not follow."""
    _reached: int = 0
    """The high watermark when it was last looked at while something held it back."""

    def __post_init__(self) -> None:
        self.isr = self.isr or list(self.replicas)

    @property
    def under_min_isr(self) -> bool:
        """Tell whether too few replicas are in sync for acks=all."""
        return len(self.isr) < min(self.min_isr, len(self.replicas))

    @property
    def high_watermark(self) -> int:
        """The offset after the last record that consumers may see.

        It does not move while too few replicas are in sync (``Partition.maybeIncrementLeaderHW``, KIP-966).
        """
        if self.under_min_isr:
            return max(self._reached, self.log.start_offset)
        if not self._copied:
            return self.log.end_offset
        self._reached = max(self._reached, min(self.log_end(node) for node in self.isr))
        return self._reached

    def hold(self, node: int) -> None:
        """Stop a replica from following; it remains in sync until ``shrink``."""
        self._reached = self.high_watermark
        self._copied.setdefault(node, self.log.end_offset)

    def follow(self, node: int, *, join: bool = True) -> None:
        """Let a replica catch up and stay up.

        :param join: it is in sync then; a controller must be there to say so.
        """
        if node in self._copied:
            self._reached = self.high_watermark
            del self._copied[node]
        if join and node not in self.isr:
            self._reached = self.high_watermark
            self.isr.append(node)
            if len(self.isr) >= self.min_isr:
                self.eligible.clear()

    def holds(self, node: int) -> bool:
        """Return whether a replica has stopped."""
        return node in self._copied

    def log_end(self, node: int) -> int:
        """Return how far a replica has copied the log."""
        return self._copied.get(node, self.log.end_offset)

    def shrink(self, node: int) -> None:
        """Take a replica out of the in-sync ones."""
        if node in self.isr:
            self._reached = self.high_watermark
            self.isr.remove(node)
            if len(self.isr) < self.min_isr:
                self.eligible.append(node)

    def candidate(self, alive: Container[int], *, unclean: bool = False) -> int:
        """Return who is to lead: an in-sync replica, else an eligible one, else any if ``unclean``, else nobody."""
        for trusted in (self.isr, self.eligible, self.replicas if unclean else ()):
            for node in self.replicas:
                if node in trusted and node in alive:
                    return node
        return NO_LEADER

    def lead(self, node: int) -> None:
        """Make ``node``, or nobody, the leader under the next epoch; what it has not copied is lost.

        A node from outside the in-sync replicas leads alone; unless it was eligible, that is an unclean election.
        """
        self._reached = self.high_watermark
        self.leader = node
        self.leader_epoch += 1
        if node == NO_LEADER:
            return
        if node not in self.isr:
            self.eligible = [other for other in self.eligible if other != node] if node in self.eligible else []
            self.isr = [node]
        end = self._copied.pop(node, self.log.end_offset)
        if end < self.log.end_offset:
            self.log.truncate(end)
            self._copied = {other: min(copied, end) for other, copied in self._copied.items()}
            self._reached = min(self._reached, end)

    def adopt(self, node: int) -> None:
        """Give the partition one more replica, which has copied everything, as a reassignment does."""
        if node not in self.replicas:
            self._reached = self.high_watermark
            self.replicas.append(node)
            self.isr.append(node)


INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})


@dataclass(slots=True)
class Topic:
    """One topic; ``config`` holds only what was set."""

    name: str
    topic_id: bytes
    config: dict[str, str]
    partitions: list[Partition] = field(default_factory=list)
