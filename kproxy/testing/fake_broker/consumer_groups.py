"""A classic consumer group: its members, its generation, and when a rebalance is complete.

States and error codes follow Kafka's group coordinator (KIP-62, KIP-394 for member ids). Time-outs are applied whenever
the group is touched, by ``expire``; a waiting request wakes up at ``next_deadline`` to touch it. So the group needs no
task of its own, and no one can see a state that a timer would have changed.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import trio

from kproxy.codec._generated.consumer_protocol_subscription import ConsumerProtocolSubscription
from kproxy.codec.messages import ErrorCode
from kproxy.codec.stored import decode_stored
from kproxy.testing.fake_broker.group_members import CommittedOffset, Member

ANY_GENERATION: Final = -1
_CONSUMERS: Final = "consumer"


class GroupState(Enum):
    """The states of a group, by their names in DescribeGroups."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class Group:
    """One group and its offsets."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    """Member ids handed out by MEMBER_ID_REQUIRED and not used yet, with their deadlines."""
    offsets: dict[tuple[str, int], CommittedOffset] = field(default_factory=dict)
    pending_offsets: dict[int, dict[tuple[str, int], CommittedOffset]] = field(default_factory=dict)
    """Offsets of open transactions, by producer id."""
    _stamps: dict[tuple[str, int], int] = field(default_factory=dict)
    _pending_stamps: dict[tuple[int, tuple[str, int]], int] = field(default_factory=dict)
    _stamp: int = 0
    _deadline: int = 0
    _changed: trio.Event = field(default_factory=trio.Event)

    def check_member(self, member_id: str, generation: int) -> ErrorCode:
        """Return UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION or NONE."""
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    @property
    def subscribed_topics(self) -> set[str] | None:
        """The topics that its members are subscribed to; None if their metadata do not say."""
        if not self.members:
            return set()
        if self.protocol_type != _CONSUMERS or self.protocol is None:
            return None
        metadata = [member.metadata(self.protocol) for member in self.members.values()]
        return {topic for one in metadata for topic in decode_stored(ConsumerProtocolSubscription, one).topics}

    def supports(self, protocol_type: str, protocols: list[tuple[str, bytes]]) -> bool:
        """Tell whether a newcomer's protocols fit those of the members."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        return protocol_type == self.protocol_type and bool(self._common() & {name for name, _ in protocols})

    def join(self, member: Member, protocol_type: str, now: int) -> None:
        """Let a member wait for the next generation; starts a rebalance unless one is being prepared."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self.pending.pop(member.member_id, None)
        self.leader = self.leader or member.member_id
        member.last_seen = now
        if self.state is not GroupState.PREPARING:
            self.prepare_rebalance(now)
        member.joined = True
        self._complete_join_if_all_are_here(now)

    def prepare_rebalance(self, now: int) -> None:
        """Open the join phase; members that wait in SyncGroup are sent back by its end."""
        self.state = GroupState.PREPARING
        for member in self.members.values():
            member.synced = False
            member.last_seen = max(member.last_seen, now) if member.joined else member.last_seen
        self._deadline = now + max((member.rebalance_timeout_ms for member in self.members.values()), default=0)
        self.wake()

    def store_assignments(self, assignments: dict[str, bytes], now: int) -> None:
        """Take the leader's assignments: the generation is stable."""
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            member.synced = False
            member.last_seen = now
        self.state = GroupState.STABLE
        self.wake()

    def remove(self, member_id: str, now: int) -> bool:
        """Drop a member; the rest rebalances. Returns whether it was one."""
        if self.pending.pop(member_id, None) is not None:
            self._complete_join_if_all_are_here(now)
            return True
        if self.members.pop(member_id, None) is None:
            return False
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self.prepare_rebalance(now)
        self._complete_join_if_all_are_here(now)
        return True

    def expire(self, now: int) -> None:
        """Apply every time-out that is due: sessions, pending member ids, the join and the sync phase."""
        for member_id, deadline in list(self.pending.items()):
            if now >= deadline:
                self.remove(member_id, now)
        for member in list(self.members.values()):
            if member.expired(now):
                self.remove(member.member_id, now)
        if self.state is GroupState.PREPARING and now >= self._deadline:
            self._complete_join(now)
        elif self.state is GroupState.COMPLETING and now >= self._deadline:
            for member in [member for member in self.members.values() if not member.synced]:
                self.remove(member.member_id, now)

    def next_deadline(self) -> int | None:
        """Return the earliest time (ms) at which ``expire`` may do something, or None."""
        deadlines = [
            member.last_seen + member.session_timeout_ms
            for member in self.members.values()
            if not (member.joined or member.synced)
        ]
        deadlines += self.pending.values()
        if self.state in (GroupState.PREPARING, GroupState.COMPLETING):
            deadlines.append(self._deadline)
        return min(deadlines, default=None)

    def commit(self, place: tuple[str, int], offset: CommittedOffset) -> None:
        """Store an offset; what an open transaction stored before loses against it."""
        self._stamp += 1
        self.offsets[place], self._stamps[place] = offset, self._stamp

    def commit_pending(self, producer_id: int, place: tuple[str, int], offset: CommittedOffset) -> None:
        """Store an offset that holds once the producer's transaction is committed."""
        self._stamp += 1
        self.pending_offsets.setdefault(producer_id, {})[place] = offset
        self._pending_stamps[producer_id, place] = self._stamp

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply or drop the offsets of a transaction."""
        for place, offset in self.pending_offsets.pop(producer_id, {}).items():
            stamp = self._pending_stamps[producer_id, place]
            if committed and stamp > self._stamps.get(place, 0):
                self.offsets[place], self._stamps[place] = offset, stamp

    def is_unstable(self, place: tuple[str, int]) -> bool:
        """Tell whether an open transaction has an offset of a partition."""
        return any(place in places for places in self.pending_offsets.values())

    def forget_topic(self, name: str) -> None:
        """Drop the offsets of a deleted topic, those of open transactions, too."""
        for places in (self.offsets, *self.pending_offsets.values()):
            for place in [place for place in places if place[0] == name]:
                del places[place]

    def wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def wait(self, now: int) -> None:
        """Sleep until something changes or the next deadline passes."""
        deadline = self.next_deadline()
        changed = self._changed
        with trio.move_on_after(float("inf") if deadline is None else max(deadline - now, 1) / 1000):
            await changed.wait()

    def _complete_join_if_all_are_here(self, now: int) -> None:
        if self.state is not GroupState.PREPARING or self.pending:
            return
        if all(member.joined for member in self.members.values()):
            self._complete_join(now)

    def _complete_join(self, now: int) -> None:
        self.members = {member_id: member for member_id, member in self.members.items() if member.joined}
        self.generation += 1
        if self.leader not in self.members:
            self.leader = next(iter(self.members), None)
        if self.members:
            self.protocol = self._elect_protocol()
            self.state = GroupState.COMPLETING
        else:
            self.protocol, self.state = None, GroupState.EMPTY
        for member in self.members.values():
            member.joined = member.synced = False
            member.last_seen = now
            member.assignment = b""
        self._deadline = now + max((member.rebalance_timeout_ms for member in self.members.values()), default=0)
        self.wake()

    def _common(self) -> set[str]:
        """Return the protocols that all members speak."""
        return set.intersection(*({name for name, _ in member.protocols} for member in self.members.values()))

    def _elect_protocol(self) -> str:
        """Return the protocol with most votes; each member votes for the first of its own that all speak."""
        common = self._common()
        votes: dict[str, int] = {}
        for member in self.members.values():
            favourite = next(name for name, _ in member.protocols if name in common)
            votes[favourite] = votes.get(favourite, 0) + 1
        return max(votes, key=lambda name: votes[name])
