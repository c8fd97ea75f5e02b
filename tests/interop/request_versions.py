"""Which versions of requests a client with transactions sends: recorded by the relays between it and kproxy."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kproxy.budget import unbounded
from kproxy.codec.header import decode_request_header
from kproxy.codec.messages import ApiKey, api_name, decode_request
from kproxy.testing.relay import Frame

Versions = Mapping[str, str]
"""The versions that were sent, in order with blanks between them, by the API's name."""

_TRANSACTIONAL: Final = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)
_SHOWN: Final = (*_TRANSACTIONAL, ApiKey.FIND_COORDINATOR, ApiKey.PRODUCE, ApiKey.API_VERSIONS)
NAMES: Final = tuple(map(api_name, _SHOWN))
"""The APIs of which versions are recorded."""
_ASKING: Final = api_name(ApiKey.API_VERSIONS)
_KEY_TYPE_TRANSACTION: Final = 1


@dataclass
class _Connection:
    """The client.id and the first transactional id that a connection named, and the versions of its requests by API."""

    client_id: str | None = None
    transactional_id: str | None = None
    versions: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))


class RequestVersions:
    """The versions of requests by the transactional ids that connections name.

    A connection is one client's, so its ApiVersions requests, which name no id, are that client's too. kafkajs asks for
    versions on its first connection alone, which names no id either: it is found by the client.id.
    """

    def __init__(self) -> None:
        self._connections: dict[tuple[int, int], _Connection] = defaultdict(_Connection)

    def watch(self, relay: int) -> Callable[[Frame], None]:
        """What a relay is to call with its frames; ``relay`` is another number for each."""

        def note(frame: Frame) -> None:
            if not frame.is_answer and frame.api_key in _SHOWN:
                self._note(self._connections[relay, frame.connection], frame.data[4:])

        return note

    def of(self, *transactional_ids: str) -> dict[str, str]:
        """The versions on all connections that named one of these ids; an API that was not used is missing."""
        found: dict[str, set[int]] = defaultdict(set)
        everything = list(self._connections.values())
        ours = [connection for connection in everything if connection.transactional_id in transactional_ids]
        for connection in ours:
            for name, versions in connection.versions.items():
                found[name] |= versions
        if _ASKING not in found:
            names = {connection.client_id for connection in ours}
            for connection in everything:
                if connection.transactional_id is None and connection.client_id in names:
                    found[_ASKING] |= connection.versions.get(_ASKING, set())
        return {name: " ".join(map(str, sorted(found[name]))) for name in NAMES if found.get(name)}

    def _note(self, connection: _Connection, request: bytes) -> None:
        header = decode_request_header(request)
        connection.client_id = header.client_id
        connection.versions[api_name(header.api_key)].add(header.api_version)
        if connection.transactional_id is None and header.api_key != ApiKey.API_VERSIONS:
            message = decode_request(header.api_key, request[header.size :], header.api_version, unbounded())
            connection.transactional_id = _transactional_id(message)


def _transactional_id(request: Any) -> str | None:
    """The id that a request names; None if it names none."""
    if request.API_KEY == ApiKey.FIND_COORDINATOR:
        keys = [request.key, *request.coordinator_keys]
        return next(filter(None, keys), None) if request.key_type == _KEY_TYPE_TRANSACTION else None
    if request.API_KEY == ApiKey.ADD_PARTITIONS_TO_TXN:
        return request.v3_and_below_transactional_id or None
    found: str | None = request.transactional_id
    return found
