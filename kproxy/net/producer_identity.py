"""Which producer a connection belongs to."""

from typing import TYPE_CHECKING, Final

from kproxy.dedup.identity import Identity, counted_host

if TYPE_CHECKING:
    from kproxy.net.connection import Connection

#: What to do where a client without a login is taken for another one.
SEVERAL_ADDRESSES: Final = (
    "identity.by: client.id, if the client reaches kproxy from several addresses (a balancer, IPv4 and IPv6)"
)


def identity_of(connection: "Connection") -> Identity:
    """The producer of a connection, by the facts that ``identity.by`` names."""
    client, by_address = connection.session.client, connection.config.identity_by == "address"
    host = counted_host(connection.client.peer_host, by_address=by_address)
    return Identity(client.principal, client.client_id, host)
