"""Which client is in which consumer group, learnt from the requests of connected clients to their groups' coordinators.

Offsets that a producer sends with its transaction name the consumer that has read them only since KIP-447. An older
client does not show that its consumer is no member any more, and that another has read the same. So where kproxy knows
one consumer of the same client in the group, it is assumed to be this.
"""

from typing import Any, Final, NamedTuple

from kproxy.budget import RequestBudget
from kproxy.codec.header import decode_request_header
from kproxy.codec.messages import ApiKey, decode_request
from kproxy.dedup.identity import Identity
from kproxy.proxy.client_memberships import ClientMemberships, Membership
from kproxy.txn.ids import Producer

#: What members ask that says of which group and generation they are.
ASKED_BY_MEMBERS: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP})
#: Clients without a connection that are remembered.
_MOST_GONE: Final = 1000
#: What all of these may take together, in bytes of names; and for how long they are remembered, in seconds: much longer
#: than a consumer can sleep and still be a member.
_MOST_GONE_BYTES: Final = 8 << 20
_GONE_SECONDS: Final = 3600.0


class _Gone(NamedTuple):
    since: float
    size: int


class Memberships:
    """Of all clients of this kproxy."""

    def __init__(self) -> None:
        self._clients: dict[Identity, ClientMemberships] = {}
        #: By connection that has spoken of groups.
        self._client_of: dict[int, Identity] = {}
        #: Those that have no such connection any more, the oldest first: since when, and the bytes of their names.
        self._gone: dict[Identity, _Gone] = {}
        self._gone_bytes = 0

    def take(self, connection: int, client: Identity, frame: memoryview, budget: RequestBudget, now: float) -> None:
        """Records a request (without its length) of ``ASKED_BY_MEMBERS``, at ``now``, in seconds.

        RemoteProtocolError if it is malformed, or needs more than ``budget``.
        """
        header = decode_request_header(frame)
        request: Any
        request = decode_request(header.api_key, frame[header.size :], header.api_version, budget)
        if not client.client_id:
            return
        if self._client_of.get(connection, client) != client:
            self.closed(connection, now)
        self._client_of[connection] = client
        self._back(client)
        self._clients.setdefault(client, ClientMemberships()).note(connection, request)

    def begins(self, client: Identity, producer: Producer) -> None:
        """A client's producer has begun a transaction, if it has none."""
        if client in self._clients:
            self._clients[client].begins(producer)

    def ends(self, client: Identity, producer: Producer) -> None:
        """It ends its transaction."""
        if client in self._clients:
            self._clients[client].ends(producer)

    def reader(self, client: Identity, producer: Producer, group_id: str) -> Membership | None:
        """The one member that has read what a client's producer writes; None if there is none, or it is not sure."""
        known = self._clients.get(client)
        return None if known is None else known.reader(producer, group_id)

    def refused(self, client: Identity, group_id: str) -> None:
        """The group did not know who ``reader`` said it was."""
        if client in self._clients:
            self._clients[client].refused(group_id)

    def closed(self, connection: int, now: float) -> None:
        """Records the end of a connection at ``now``, in seconds; what is too old or too much is forgotten."""
        client = self._client_of.pop(connection, None)
        if client is not None:
            known = self._clients[client]
            known.closed(connection)
            if known.is_unknown:
                del self._clients[client]
            elif not known.is_connected:
                self._gone[client] = _Gone(now, known.size)
                self._gone_bytes += known.size
        self._forget_left(now)

    def _forget_left(self, now: float) -> None:
        while self._gone:
            oldest, gone = next(iter(self._gone.items()))
            few = len(self._gone) <= _MOST_GONE and self._gone_bytes <= _MOST_GONE_BYTES
            if few and now - gone.since <= _GONE_SECONDS:
                return
            self._back(oldest)
            del self._clients[oldest]

    def _back(self, client: Identity) -> None:
        gone = self._gone.pop(client, None)
        if gone is not None:
            self._gone_bytes -= gone.size
