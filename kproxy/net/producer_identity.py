"""Which producer a connection belongs to."""

from typing import TYPE_CHECKING

from kproxy.dedup.identity import Identity, normal_host

if TYPE_CHECKING:
    from kproxy.net.connection import Connection


def identity_of(connection: "Connection") -> Identity:
    """The producer of a connection, by the facts that ``identity.by`` names."""
    client, by_address = connection.session.client, connection.config.identity_by == "address"
    return Identity(client.principal, client.client_id, normal_host(connection.client.peer_host) if by_address else "")
