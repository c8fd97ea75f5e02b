"""Who is in which consumer group, by what connected clients ask of their groups' coordinators.

Offsets that a producer sends with its transaction name the consumer that has read them since KIP-447 alone. Of an older
client nobody could tell that its consumer is no member any more, and that another has read the same. So where kproxy
knows one consumer of the same client in the group, it is taken to be this.
"""

from typing import Any, Final, NamedTuple

from kproxy.codec._generated.heartbeat import HeartbeatRequest
from kproxy.codec._generated.join_group import JoinGroupRequest
from kproxy.codec._generated.leave_group import LeaveGroupRequest
from kproxy.codec._generated.sync_group import SyncGroupRequest
from kproxy.codec.header import decode_request_header
from kproxy.codec.messages import ApiKey, request_class

#: What members ask that says of which group and generation they are.
ASKED_BY_MEMBERS: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP})
#: Members of which a connection may speak; of one that speaks of more nothing is known.
_MOST: Final = 64
#: Groups of clients whose connections have ended that are remembered.
_MOST_ENDED: Final = 1000


class Client(NamedTuple):
    """One client, as far as that can be told: its consumer and its producer have connections of their own."""

    principal: str
    client_id: str
    host: str


class Membership(NamedTuple):
    """What TxnOffsetCommit says of a member since KIP-447."""

    generation_id: int
    member_id: str
    group_instance_id: str | None


class _Connection:
    """What one connection has said."""

    def __init__(self, client: Client) -> None:
        self.client = client
        #: By group and member id; None: it has spoken of too many.
        self.members: dict[tuple[str, str], Membership] | None = {}
        #: Groups that it joins as somebody new: who it was counts until it has joined, for what was read before.
        self.renewed: set[str] = set()

    def note(self, request: Any) -> None:
        """Takes note of a request."""
        members, group = self.members, request.group_id
        if members is None:
            return
        match request:
            case SyncGroupRequest() | HeartbeatRequest():
                if isinstance(request, SyncGroupRequest) and group in self.renewed:
                    self.renewed.discard(group)
                    for key in [key for key in members if key[0] == group]:
                        del members[key]
                member = Membership(request.generation_id, request.member_id, request.group_instance_id)
                members[group, request.member_id] = member
                if len(members) > _MOST:
                    self.members = None
            case JoinGroupRequest(member_id="") if any(key[0] == group for key in members):
                self.renewed.add(group)
            case LeaveGroupRequest():
                self.renewed.discard(group)
                for gone in (request.member_id, *(row.member_id for row in request.members)):
                    members.pop((group, gone), None)


class Memberships:
    """Of all connections of this kproxy.

    What one has said counts behind its end until the client says more of that group: a consumer that has slept takes
    its coordinator for gone when it wakes (Java's ``AbstractCoordinator``), while its producer goes on at once.
    """

    def __init__(self) -> None:
        self._connections: dict[int, _Connection] = {}
        #: By client and group, of connections that have ended, the oldest first; None: they spoke of several members.
        self._ended: dict[tuple[Client, str], Membership | None] = {}

    def take(self, connection: int, client: Client, frame: memoryview) -> None:
        """Takes note of a request (without its length) of ``ASKED_BY_MEMBERS``. RemoteProtocolError if malformed."""
        header = decode_request_header(frame)
        request: Any = request_class(header.api_key).decode(frame[header.size :], header.api_version, surplus=True)
        if client.client_id:
            known = self._connections.get(connection)
            if known is None or known.client != client:
                known = self._connections[connection] = _Connection(client)
            known.note(request)
            if not isinstance(request, JoinGroupRequest):
                self._ended.pop((client, request.group_id), None)

    def of(self, client: Client, group_id: str) -> Membership | None:
        """The one member that a client has in a group; None if it has none, or several, or it is not sure."""
        found: dict[str, Membership] = {}
        for known in self._connections.values():
            if known.client != client:
                continue
            if known.members is None:
                return None
            for (group, member_id), member in known.members.items():
                if group == group_id and member.generation_id >= found.get(member_id, member).generation_id:
                    found[member_id] = member
        if not found:
            return self._ended.get((client, group_id))
        return next(iter(found.values())) if len(found) == 1 else None

    def refused(self, client: Client, group_id: str) -> None:
        """The group refused what ``of`` said: who has no connection here may be a member at another kproxy now."""
        self._ended.pop((client, group_id), None)

    def closed(self, connection: int) -> None:
        """Takes note of the end of a connection."""
        known = self._connections.pop(connection, None)
        if known is None or known.members is None:
            return
        for (group, member_id), member in known.members.items():
            earlier = self._ended.pop((known.client, group), member)
            sure = earlier is not None and earlier.member_id == member_id
            self._ended[known.client, group] = member if sure else None
        while len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
