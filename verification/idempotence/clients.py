"""Clients of the interop tests: those that number their batches, as they are set by default, and one that does not."""

from dataclasses import replace
from typing import Any, Final

from tests.interop.catalog import CLIENTS, Client

#: Ends the name of a client without idempotence: it has up to a million requests in flight.
_PLAIN: Final = "-plain"
#: librdkafka waits for up to 10 s before it connects again.
_SOON: Final = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "batch.num.messages": 10}
#: Where a connection ends together with a response, clients of this age notice it at their next event or time-out
#: (``Selector.clear`` finds it, and waits before it tells): of those the renewal of metadata is the shortest.
_WAKES: Final = {"metadata.max.age.ms": "1000"}
#: By the name of the client's row: what turns its idempotence on, if it is off by default, and makes its batches small.
_SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "java-0.11.0.3": {"enable.idempotence": "true", "acks": "all", "retries": "2147483647", "batch.size": "1000"},
    "java-2.0.1-idempotent": {"batch.size": "1000", "request.timeout.ms": "120000", **_WAKES},
    "java-2.8.2": {"enable.idempotence": "true", "acks": "all", "batch.size": "1000"},
    "java-4.4.0": {"batch.size": "1000"},
    "librdkafka-2.0.2": {"enable.idempotence": True, **_SOON},
    "librdkafka-2.16.1": {"enable.idempotence": True, **_SOON},
    f"librdkafka-2.16.1{_PLAIN}": {"enable.idempotence": False, **_SOON},
    "kafka-python-3.0.12": {"batch_size": 1000},
    "aiokafka-0.14.0": {"enable_idempotence": True, "max_batch_size": 1000},
    "franz-go-1.22.2": {"idempotent": "true", "in_flight": "1"},
    "sarama-1.61.1-2.8.1": {"idempotent": "true", "in_flight": "1", "retries": "100"},
    "kafkajs-2.2.4": {"idempotent": True, "maxInFlightRequests": 1},
}
_JAVA_HASTY: Final = {"delivery.timeout.ms": "1000", "request.timeout.ms": "500"}
_LIBRDKAFKA_HASTY: Final = {"message.timeout.ms": 1_000}
#: What has a client give a record up after a second, where it has such a time-out.
_HASTY: Final[dict[str, dict[str, Any]]] = {
    "java-0.11.0.3": {"request.timeout.ms": "1000"},
    "java-2.0.1-idempotent": {"request.timeout.ms": "1000"},
    "java-2.8.2": _JAVA_HASTY,
    "java-4.4.0": _JAVA_HASTY,
    "librdkafka-2.0.2": _LIBRDKAFKA_HASTY,
    "librdkafka-2.16.1": _LIBRDKAFKA_HASTY,
    f"librdkafka-2.16.1{_PLAIN}": _LIBRDKAFKA_HASTY,
    "kafka-python-3.0.12": {"delivery_timeout_ms": 1_000, "request_timeout_ms": 500},
    "aiokafka-0.14.0": {"request_timeout_ms": 1_000},
    "franz-go-1.22.2": {"delivery_ms": "1000"},
}


def idempotent_clients() -> dict[str, Client]:
    """The clients, by name, with the settings of the trial."""
    by_name = {client.name: client for client in CLIENTS}
    return {name: _with(by_name[name.removesuffix(_PLAIN)], name, settings) for name, settings in _SETTINGS.items()}


def client_of(name: str, *, hasty: bool) -> Client | None:
    """The client of this name; ``hasty``: it gives a record up after a second. None: it has no such time-out."""
    client = idempotent_clients()[name]
    if not hasty:
        return client
    return _with(client, name, _HASTY[name]) if name in _HASTY else None


def is_plain(client: Client) -> bool:
    """Return whether a client does not number its batches."""
    return client.name.endswith(_PLAIN)


def _with(client: Client, name: str, settings: dict[str, Any]) -> Client:
    producer = {**client.options.get("producer", {}), **settings}
    return replace(client, name=name, options={**client.options, "producer": producer})
