"""Counters of requests by API key and version."""

from dataclasses import dataclass, field

from kproxy.proxy.durations import Requests

OTHER_CLIENTS = "(other)"
"""Counts all clients beyond ``legacy_clients_max``, both as client.id and as software."""

_LABEL_LIMIT = 128


@dataclass(slots=True)
class ApiStats:
    """Requests by API.

    Keys of ``requests`` must be versions that kproxy serves, else a peer could make the dictionary grow.
    """

    legacy_clients_max: int = 200
    requests: dict[tuple[int, int], Requests] = field(default_factory=dict)
    """By API key and version."""
    requests_unanswered: dict[int, int] = field(default_factory=dict)
    """By API key."""
    legacy_requests: dict[tuple[int, int, str, str], int] = field(default_factory=dict)
    """Requests in versions that Kafka 4 removed, by API key, version, client.id and client software."""
    _legacy_clients: set[tuple[str, str]] = field(default_factory=set)

    def observe(self, api_key: int, api_version: int, seconds: float, bytes_in: int, bytes_out: int) -> None:
        """Counts one answered request: the seconds from its last byte to its response, and the bytes of both."""
        stat = self.requests.get((api_key, api_version))
        if stat is None:
            stat = self.requests[api_key, api_version] = Requests()
        stat.observe(seconds)
        stat.bytes_in += bytes_in
        stat.bytes_out += bytes_out

    def unanswered(self, api_key: int) -> None:
        """Counts one request that ended its connection in place of a response."""
        self.requests_unanswered[api_key] = self.requests_unanswered.get(api_key, 0) + 1

    def observe_legacy(self, api_key: int, api_version: int, client_id: str | None, software: str) -> None:
        """Count one request in a removed version; clients beyond the limit are counted as one."""
        client = legacy_label(client_id, software)
        if client not in self._legacy_clients:
            if len(self._legacy_clients) < self.legacy_clients_max:
                self._legacy_clients.add(client)
            else:
                client = (OTHER_CLIENTS, OTHER_CLIENTS)
        key = (api_key, api_version, *client)
        self.legacy_requests[key] = self.legacy_requests.get(key, 0) + 1

    def legacy_counts(self) -> dict[tuple[str, str], int]:
        """Requests in removed versions by client.id and client software."""
        counts: dict[tuple[str, str], int] = {}
        for (_, _, *client), count in self.legacy_requests.items():
            label = client[0], client[1]
            counts[label] = counts.get(label, 0) + count
        return counts


def legacy_label(client_id: str | None, software: str) -> tuple[str, str]:
    """The client.id and the software by which a client is counted."""
    return (client_id or "")[:_LABEL_LIMIT], software[:_LABEL_LIMIT]
