"""What the routes that change nothing answer, as JSON Schema; the fields are those of ``kproxy.proxy.facts``."""

from typing import Final

from kproxy.control.json_schema import Schema
from kproxy.control.schemas import all_required

_TEXT: Final[Schema] = {"type": "string"}
_MOMENT: Final[Schema] = {"type": "integer", "description": "ms since 1970."}
_DURATION: Final[Schema] = {"type": "integer", "minimum": 0, "description": "ms."}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_RATE: Final[Schema] = {"type": "number", "minimum": 0}
_COUNTS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "integer"}}
_RATES: Final[Schema] = {"type": "array", "items": _RATE}

_FAILURE: Final[Schema] = {
    **all_required({"reason": _TEXT, "at_ms": _MOMENT}, "What went wrong last; null if nothing did."),
    "type": ["object", "null"],
}
_TRAFFIC: Final = all_required(
    {"bytes_in": _RATE, "bytes_out": _RATE, "requests": _RATE},
    "Bytes from and to clients, and answered requests, each a second over the last two seconds.",
)
_CLIENT_ERROR: Final = all_required(
    {"client_id": _TEXT, "host": _TEXT, "reason": _TEXT, "at_ms": _MOMENT}, "An error of a client, which may be gone."
)
_TRANSACTIONS: Final = all_required(
    {
        "open": _COUNT,
        "prepared": _COUNT,
        "oldest_open_ms": _DURATION,
        "unknown_producer_ids": _COUNT,
        "log_lag": _COUNT,
        "log_losses": _COUNT,
        "commits": _COUNT,
        "aborts": _COUNT,
    },
    "Transactions that kproxy decides; commits, aborts and losses of records of the transaction log since the start.",
)
_HISTORY: Final = all_required(
    {"interval_ms": _DURATION, "bytes_in": _RATES, "bytes_out": _RATES, "requests": _RATES},
    "The last minutes, oldest first, one figure for each interval.",
)
STATUS: Final = all_required(
    {
        "instance_id": _TEXT,
        "version": _TEXT,
        "started_ms": _MOMENT,
        "now_ms": _MOMENT,
        "ready": {"type": "boolean", "description": "Whether clients are served; if not, reasons says why."},
        "reasons": {"type": "array", "items": _TEXT},
        "listen": _TEXT,
        "bootstrap_servers": _TEXT,
        "connections": _COUNT,
        "max_connections": _COUNT,
        "connections_total": _COUNT,
        "brokers_up": _COUNT,
        "brokers_known": _COUNT,
        "lanes": {**_COUNT, "description": "Producer ids in use."},
        "in_flight": {**_COUNT, "description": "Stamped batches in flight."},
        "in_doubt": {**_COUNT, "description": "Batches whose clients may not have had the answer."},
        "unacknowledged_ms": {**_DURATION, "description": "Age of the oldest batch whose fate is open, ms."},
        "buffered_bytes": _COUNT,
        "buffer_memory": _COUNT,
        "records_matched": {**_COUNT, "description": "Records recognised as retries; each would be a duplicate."},
        "per_second": _TRAFFIC,
        "transactions": _TRANSACTIONS,
        "refusals": {**_COUNTS, "description": "By reason, since the start."},
        "connections_refused": {**_COUNTS, "description": "By reason, since the start."},
        "broker_errors": {**_COUNTS, "description": "By kind, since the start."},
        "recent_errors": {"type": "array", "items": _CLIENT_ERROR, "description": "The newest of each client."},
        "history": _HISTORY,
    },
    "The whole in short.",
)

_CLIENT: Final = all_required(
    {
        "client_id": _TEXT,
        "software_name": {"type": "string", "description": "As ApiVersions v3 told (KIP-511); else empty."},
        "software_version": _TEXT,
        "host": _TEXT,
        "principal": _TEXT,
        "connections": _COUNT,
        "connected_ms": _MOMENT,
        "versions": {**_COUNTS, "description": "By API the version that was used last."},
        "requests": {**_COUNT, "description": "Answered on these connections."},
        "per_second": _TRAFFIC,
        "last_error": _FAILURE,
    },
    "All connections with one client.id, host, principal and software.",
)
_LANE: Final = all_required(
    {
        "producer_id": {"type": ["integer", "null"], "description": "kproxy's own; null: the lane was given up."},
        "epoch": {"type": ["integer", "null"]},
        "state": {"type": "string", "enum": ["leased", "resting", "given up"]},
        "client_id": _TEXT,
        "host": _TEXT,
        "principal": _TEXT,
        "partitions": _COUNT,
        "in_flight": _COUNT,
        "unacknowledged_ms": {**_DURATION, "description": "Age of its oldest batch without a definite fate, ms."},
        "in_doubt": {**_COUNT, "description": "Of its producer; the same for all its lanes."},
    },
    "A producer id of kproxy's own and who writes under it.",
)
_BROKER: Final = all_required(
    {
        "node_id": {"type": "integer"},
        "address": _TEXT,
        "rack": {"type": ["string", "null"]},
        "up": {"type": "boolean", "description": "Whether the last Metadata answer named it."},
        "release": {"type": ["string", "null"], "description": "The release of Kafka that it is most like."},
        "features": {**_COUNTS, "description": "Finalized, as transaction.version (KIP-584)."},
        "port": {"type": ["integer", "null"], "description": "Of kproxy, for this broker."},
        "connections": {**_COUNT, "description": "Of clients, relayed to it."},
        "errors": _COUNT,
        "last_error": _FAILURE,
    },
    "A broker as this kproxy sees it.",
)


def _listed(name: str, row: Schema) -> Schema:
    total = {**_COUNT, "description": "All; at most 500 are listed."}
    return all_required({"total": total, name: {"type": "array", "items": row}}, f"The {name}.")


CLIENTS: Final = _listed("clients", _CLIENT)
LANES: Final = _listed("lanes", _LANE)
BROKERS: Final = _listed("brokers", _BROKER)
