"""Who is in which consumer group, by what connected clients ask of their groups' coordinators.

Offsets that a producer sends with its transaction name the consumer that has read them since KIP-447 alone. Of an older
client nobody could tell that its consumer is no member any more, and that another has read the same. So where kproxy
knows one consumer of the same client in the group, it is taken to be this.
"""

from typing import Any, Final, NamedTuple

from kproxy.codec.header import decode_request_header
from kproxy.codec.messages import ApiKey, request_class
from kproxy.proxy.client_memberships import ClientMemberships, Membership
from kproxy.txn.ids import Producer

#: What members ask that says of which group and generation they are.
ASKED_BY_MEMBERS: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP})
#: Clients without a connection that are remembered.
_MOST_GONE: Final = 1000


class Client(NamedTuple):
    """One client, as far as that can be told: its consumer and its producer have connections of their own."""

    principal: str
    client_id: str
    host: str


class Memberships:
    """Of all clients of this kproxy."""

    def __init__(self) -> None:
        self._clients: dict[Client, ClientMemberships] = {}
        #: By connection that has spoken of groups.
        self._client_of: dict[int, Client] = {}
        #: Those that have no such connection any more, the oldest first.
        self._gone: dict[Client, None] = {}

    def take(self, connection: int, client: Client, frame: memoryview) -> None:
        """Takes note of a request (without its length) of ``ASKED_BY_MEMBERS``. RemoteProtocolError if malformed."""
        header = decode_request_header(frame)
        request: Any = request_class(header.api_key).decode(frame[header.size :], header.api_version, surplus=True)
        if not client.client_id:
            return
        if self._client_of.get(connection, client) != client:
            self.closed(connection)
        self._client_of[connection] = client
        self._gone.pop(client, None)
        self._clients.setdefault(client, ClientMemberships()).note(connection, request)

    def begins(self, client: Client, producer: Producer) -> None:
        """A client's producer has begun a transaction, if it has none."""
        if client in self._clients:
            self._clients[client].begins(producer)

    def ends(self, client: Client, producer: Producer) -> None:
        """It ends its transaction."""
        if client in self._clients:
            self._clients[client].ends(producer)

    def reader(self, client: Client, producer: Producer, group_id: str) -> Membership | None:
        """The one member that has read what a client's producer writes; None if there is none, or it is not sure."""
        known = self._clients.get(client)
        return None if known is None else known.reader(producer, group_id)

    def refused(self, client: Client, group_id: str) -> None:
        """The group did not know who ``reader`` said it was."""
        if client in self._clients:
            self._clients[client].refused(group_id)

    def closed(self, connection: int) -> None:
        """Takes note of the end of a connection."""
        client = self._client_of.pop(connection, None)
        if client is None:
            return
        known = self._clients[client]
        known.closed(connection)
        if known.is_unknown:
            del self._clients[client]
        elif not known.is_connected:
            self._gone[client] = None
        if len(self._gone) > _MOST_GONE:
            oldest = next(iter(self._gone))
            del self._gone[oldest], self._clients[oldest]
