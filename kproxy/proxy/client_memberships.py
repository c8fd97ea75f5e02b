"""What one client's connections have said of its groups, and its memberships when its transactions began."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kproxy.codec._generated.heartbeat import HeartbeatRequest
from kproxy.codec._generated.join_group import JoinGroupRequest
from kproxy.codec._generated.leave_group import LeaveGroupRequest
from kproxy.codec._generated.sync_group import SyncGroupRequest
from kproxy.txn.ids import Producer

#: Members of which a connection may speak; of one that speaks of more nothing is known.
_MOST: Final = 64
#: What the names of these members and of their groups may take, in bytes.
_MOST_BYTES: Final = 32_768


class Membership(NamedTuple):
    """What TxnOffsetCommit says of a member since KIP-447."""

    generation_id: int
    member_id: str
    group_instance_id: str | None


class _Connection:
    """What one connection has said, by group and member id."""

    def __init__(self) -> None:
        #: None: it has spoken of too many.
        self.members: dict[tuple[str, str], Membership] | None = {}
        #: Those that have left while a transaction is open: it may still get what they have read.
        self.left: dict[tuple[str, str], Membership] = {}
        #: Groups that it joins as a new member: its former membership counts until it has joined, for what was read
        #: before.
        self.renewed: set[str] = set()

    def is_member(self, request: SyncGroupRequest | HeartbeatRequest) -> None:
        """Records a member."""
        members, group = self.members, request.group_id
        if members is None:
            return
        if isinstance(request, SyncGroupRequest) and group in self.renewed:
            self.renewed.discard(group)
            _forget(members, group)
        members[group, request.member_id] = Membership(
            request.generation_id, request.member_id, request.group_instance_id
        )
        if len(members) > _MOST or _size(members.values(), members) > _MOST_BYTES:
            self.members = None

    def joins(self, request: JoinGroupRequest) -> None:
        """Records a consumer that joins as a new member."""
        if not request.member_id and any(group == request.group_id for group, _ in self.members or ()):
            self.renewed.add(request.group_id)

    def leaves(self, group: str, member_id: str, otherwise: Membership | None) -> None:
        """Records that a member leaves; ``otherwise``: which one it may be that has sent no request here before."""
        self.renewed.discard(group)
        member = self.members.pop((group, member_id), otherwise) if self.members is not None else None
        if member is not None and member.member_id == member_id and len(self.left) < _MOST:
            self.left[group, member_id] = member


class ClientMemberships:
    """The memberships of one client, which has a consumer and a producer: whose input the producer writes.

    Three kinds of former members count. A member that has left, as long as its connection is open: a consumer that is
    not polled for ``max.poll.interval.ms`` leaves while its application still works. A member whose connection has
    ended, until the client sends another request about that group: a consumer that has slept treats its coordinator as
    unavailable when it wakes (Java's ``AbstractCoordinator``), while its producer continues at once. And the member
    that it was when the transaction began, if the consumer has rejoined by itself since then (aiokafka).
    """

    def __init__(self) -> None:
        self._connections: dict[int, _Connection] = {}
        #: By group, of connections that have ended, the oldest first; None: they spoke of several members.
        self._ended: dict[str, Membership | None] = {}
        #: By producer that is in a transaction, the oldest first, and group.
        self._begun: dict[Producer, dict[str, Membership]] = {}

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection of it that has spoken of groups."""
        return bool(self._connections)

    @property
    def is_unknown(self) -> bool:
        """Whether nothing is known of it."""
        return not (self._connections or self._ended or self._begun)

    @property
    def size(self) -> int:
        """Bytes of names that are remembered of connections that have ended."""
        return sum(map(len, self._ended)) + sum(map(_length, filter(None, self._ended.values())))

    def note(self, connection: int, request: Any) -> None:
        """Records what a request says of memberships."""
        known = self._connections.setdefault(connection, _Connection())
        group = request.group_id
        match request:
            case SyncGroupRequest() | HeartbeatRequest():
                known.is_member(request)
                self._ended.pop(group, None)
                _forget(known.left, group)
            case JoinGroupRequest():
                known.joins(request)
            case LeaveGroupRequest():
                ended = self._ended.pop(group, None)
                for member_id in (request.member_id, *(row.member_id for row in request.members)):
                    known.leaves(group, member_id, ended)

    def of(self, group: str) -> Membership | None:
        """The one member that the client has in a group; None if it has none, or several, or it is not sure."""
        connections = self._connections.values()
        if any(known.members is None for known in connections):
            return None
        members = [known.members for known in connections if known.members]
        left = [known.left for known in connections if known.left]
        found = _newest(group, members) or _newest(group, left)
        if not found:
            return self._ended.get(group)
        return found[0] if len(found) == 1 else None

    def begins(self, producer: Producer) -> None:
        """A transaction has begun: the input of its data was read by the present members."""
        if producer in self._begun:
            return
        keys = (key for known in self._connections.values() for key in (*(known.members or ()), *known.left))
        groups = {*(group for group, _ in keys), *self._ended}
        members = {group: member for group in groups if (member := self.of(group)) is not None}
        if members:
            self._begun[producer] = members
        if len(self._begun) > _MOST:
            del self._begun[next(iter(self._begun))]

    def reader(self, producer: Producer, group: str) -> Membership | None:
        """Who has read what is written in a producer's transaction; as ``of`` if that is not known since it began."""
        return self._begun.get(producer, {}).get(group) or self.of(group)

    def ends(self, producer: Producer) -> None:
        """The transaction has ended."""
        self._begun.pop(producer, None)

    def refused(self, group: str) -> None:
        """The group did not know the member: one without a connection here may be a member at another kproxy now."""
        self._ended.pop(group, None)

    def closed(self, connection: int) -> None:
        """Records the end of a connection. A member that had left before no longer counts: the consumer was closed."""
        known = self._connections.pop(connection, None)
        if known is None:
            return
        for (group, member_id), member in (known.members or {}).items():
            earlier = self._ended.pop(group, member)
            self._ended[group] = member if earlier is not None and earlier.member_id == member_id else None
        while len(self._ended) > _MOST or self.size > _MOST_BYTES:
            del self._ended[next(iter(self._ended))]
        for group, member_id in known.left:
            for members in self._begun.values():
                if group in members and members[group].member_id == member_id:
                    del members[group]


def _forget(members: dict[tuple[str, str], Membership], group: str) -> None:
    for key in [key for key in members if key[0] == group]:
        del members[key]


def _newest(group: str, said: Iterable[dict[tuple[str, str], Membership]]) -> list[Membership]:
    """The members of a group, each in its newest known generation."""
    found: dict[str, Membership] = {}
    for members in said:
        for (name, member_id), member in members.items():
            if name == group and member.generation_id >= found.get(member_id, member).generation_id:
                found[member_id] = member
    return list(found.values())


def _length(member: Membership) -> int:
    return len(member.member_id) + len(member.group_instance_id or "")


def _size(members: Iterable[Membership], keys: Iterable[tuple[str, str]]) -> int:
    return sum(map(_length, members)) + sum(len(group) for group, _ in keys)
