"""Counters of the clients' connections."""

# ruff: noqa: RUF009 - these functions make a dataclasses.field, not a shared mutable default.

from dataclasses import dataclass, field

from kproxy.proxy.metric_fields import counters, gauge, gauges
from kproxy.proxy.software import SoftwareCounts


@dataclass(slots=True)
class ClientStats:
    """The connections of clients, and the bytes held for them."""

    connections: dict[str, int] = gauges(
        "Client connections open; listener is bootstrap, or the id of a broker.", "listener"
    )
    connections_limit: int = gauge(
        "Limit of client connections; further ones are refused: max.connections, or what the limit on open files "
        "allows."
    )
    connections_accepted: dict[str, int] = counters("Client connections since the start.", "listener")
    connections_refused: dict[str, int] = counters(
        "Client connections refused. files: the file descriptors left are kept for connected clients.",
        "reason",
        expected=("accept", "files", "max_connections", "max_connections_per_ip", "proxy_protocol"),
    )
    logins: dict[tuple[str, str], int] = counters(
        "Logins of clients by SASL; result is accepted, renewed, refused for its credentials, or unsupported for its "
        "mechanism.",
        "mechanism",
        "result",
        name="client_logins",
    )
    software: SoftwareCounts = field(default_factory=SoftwareCounts)
    """Open connections by the name that the client's software sends."""
    bytes_in: int = 0
    bytes_out: int = 0
    buffered_bytes: int = gauge(
        "Bytes held in buffers; near kproxy_buffered_bytes_limit, brokers or consumers are slower than producers."
    )
    buffered_bytes_limit: int = gauge("Above this kproxy stops reading: 3/4 of buffer.memory.")

    @property
    def connections_open(self) -> int:
        """Client connections that are open, of all listeners."""
        return sum(self.connections.values())

    def connected(self, listener: str) -> None:
        """Counts one client connection more."""
        self.connections[listener] = self.connections.get(listener, 0) + 1
        self.connections_accepted[listener] = self.connections_accepted.get(listener, 0) + 1
