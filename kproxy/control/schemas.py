"""Requests and responses of the control API, as JSON Schema: it checks bodies, and OpenAPI shows it."""

from collections.abc import Sequence
from typing import Any, Final

from kproxy.control.json_schema import Schema, an_object, list_of
from kproxy.txn.prepared_parts import MOST_MEMBERS

DEFAULT_TIMEOUT_MS: Final = 60_000
_INT64_MAX: Final = (1 << 63) - 1
_NAME_LENGTH: Final = 1_000

TRANSACTIONAL_ID: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": _NAME_LENGTH,
    "description": "Names the transactions of one producer, as transactional.id does.",
}
MEMBER: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": _NAME_LENGTH,
    "description": "Names a member of a transaction; never used twice, so put a UUID in.",
}
_MEMBERS: Final[Schema] = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": _NAME_LENGTH},
    "maxItems": MOST_MEMBERS,
    "description": "The members whose parts are decided with the owner's.",
}

_PRODUCER: Final = {
    "producer_id": {"type": "integer", "minimum": -1, "maximum": _INT64_MAX, "description": "-1: none yet."},
    "producer_epoch": {"type": "integer", "minimum": -1, "maximum": 32_767},
}
_OWNER: Final = an_object(
    _PRODUCER,
    "As begin, initialize or describe returned it; refused (PRODUCER_FENCED) if a newer owner has the id.",
    closed=True,
)
_OTHERS: Final[Schema] = {
    "type": "boolean",
    "default": False,
    "description": "All else of the id that is prepared or open is aborted.",
}
_TIMEOUT: Final[Schema] = {
    "type": "integer",
    "minimum": 1,
    "maximum": (1 << 31) - 1,
    "default": DEFAULT_TIMEOUT_MS,
    "description": "After so many ms without a decision the transaction is aborted; at most "
    "transaction.max.timeout.ms.",
}
_CLIENT_ID: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": _NAME_LENGTH,
    "description": "The client.id of the producer whose records belong to the transaction.",
}


def _body(properties: Schema, *, required: Sequence[str] = (), **more: Any) -> Schema:
    return an_object(properties, required=required, closed=True, **more)


BEGIN: Final = _body(
    {
        "client_id": {
            **_CLIENT_ID,
            "description": "The client.id of the producer whose records belong to the transaction; by default the one "
            "that the transactional id had last.",
        },
        "transactional_id": {**TRANSACTIONAL_ID, "description": 'By default "kproxy-" and the client.id.'},
        "timeout_ms": _TIMEOUT,
    },
    anyOf=[{"required": ["client_id"]}, {"required": ["transactional_id"]}],
)
INITIALIZE: Final = _body(
    {
        "client_id": {**_CLIENT_ID, "minLength": 0, "description": "Shown as the client.id of the transactional id."},
        "timeout_ms": _TIMEOUT,
    }
)
BEGIN_MEMBER: Final = _body(
    {
        "client_id": _CLIENT_ID,
        "owner": _OWNER,
        "timeout_ms": {
            **{name: value for name, value in _TIMEOUT.items() if name != "default"},
            "description": "The member cannot be prepared after so many ms; by default the id's time-out.",
        },
        "prefer_broker": {
            "type": "boolean",
            "default": False,
            "description": "Where transactions.home is auto: the part is a transaction of the broker's, if the brokers "
            "serve transactions, so that consumers without kproxy see it only after the commit.",
        },
    },
    required=("client_id",),
)
_BATCH_ID: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 200}
COMMIT: Final = _body(
    {
        "batch_id": {
            **_BATCH_ID,
            "description": "Makes the commit safe to repeat: the same id again is a success that changes nothing.",
        },
        "members": _MEMBERS,
        "owner": _OWNER,
        "abort_others": _OTHERS,
    },
    # a decision that names neither, and comes late, would be the next transaction's
    anyOf=[{"required": ["owner"]}, {"required": ["batch_id"]}],
)
ABORT: Final = _body({"members": _MEMBERS, "owner": _OWNER, "abort_others": _OTHERS}, required=("owner",))
PREPARE: Final = _body(
    {
        "owner": _OWNER,
        "batch_id": {
            **_BATCH_ID,
            "description": "A commit under another batch id leaves the part out. Default: the log knows only who owned "
            "the id.",
        },
    },
    required=("owner",),
)
ABORT_MEMBER: Final = _body({})
PREPARE_MEMBER: Final = _body(
    {
        "records": {
            "type": "integer",
            "minimum": 0,
            "description": "How many records the client has written. TRANSACTION_ABORTABLE if kproxy received another "
            "number of them, so that some are elsewhere and outside of the transaction. Default: it is not compared.",
        }
    }
)
REJECT: Final = _body({})

STATE: Final[Schema] = {
    "type": "string",
    "enum": ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"],
    "description": "As Kafka names it.",
}
UNDECIDED: Final[Schema] = {"type": "string", "enum": ["true", "false"], "default": "false"}
_STARTED: Final[Schema] = {
    "type": ["integer", "null"],
    "description": "When the transaction began, in ms since 1970; null if there is none.",
}
_INSTANCE: Final[Schema] = {"type": "string", "description": "instance.id of the kproxy that owns the id."}

LISTED: Final = an_object(
    {
        "transactional_id": TRANSACTIONAL_ID,
        "state": STATE,
        "client_id": {"type": "string"},
        **_PRODUCER,
        "started_ms": _STARTED,
        "instance_id": _INSTANCE,
        "undecided_parts": {
            "type": "integer",
            "minimum": 0,
            "description": "Of members, or prepared: they wait for the owner's decision, whatever the state says.",
        },
    },
    "A transactional id in the list.",
)
_STALE: Final[Schema] = {
    **an_object(
        {
            "as_of_ms": {
                "type": ["integer", "null"],
                "description": "When the log was read to its end last, in ms since 1970; null: it was not read yet.",
            },
            "reason": {"type": "string", "description": "Why it cannot be read now."},
        },
        "The age of what is shown if the transaction log cannot be read now; null if it is current.",
    ),
    "type": ["object", "null"],
}
LIST: Final = an_object({"transactions": list_of(LISTED), "stale": _STALE}, "All transactional ids.")

_PARTITION: Final = an_object(
    {"topic": {"type": "string"}, "partition": {"type": "integer", "minimum": 0}}, "A partition."
)
_PART: Final = an_object(
    {
        "name": {"type": "string", "description": "Of the member; empty for what the owner wrote itself."},
        **_PRODUCER,
        "prepared": {"type": "boolean", "description": "It waits for the owner's decision for as long as it takes."},
        "expires_ms": {
            "type": ["integer", "null"],
            "description": "When the broker aborts it if nobody has decided it, in ms since 1970; null: nobody does.",
        },
        "batch_id": {
            "type": ["string", "null"],
            "description": "Under which an owner's part was prepared, if prepare gave one.",
        },
    },
    "What is decided together with the rest.",
)
_OUTCOME: Final[Schema] = {
    **an_object(
        {
            "committed": {"type": "boolean"},
            "reason": {"type": "string"},
            "at_ms": {"type": "integer", "description": "When the broker took it, in ms since 1970."},
        },
        "The last decision; null if there was none.",
    ),
    "type": ["object", "null"],
}
DESCRIBED: Final = an_object(
    {
        "transactional_id": TRANSACTIONAL_ID,
        "state": STATE,
        "client_id": {"type": "string"},
        **_PRODUCER,
        "owner": {**_OWNER, "description": "The same as one value, for members and decisions."},
        "started_ms": _STARTED,
        "timeout_ms": {"type": "integer"},
        "partitions": list_of(_PARTITION, "Written by the transaction."),
        "groups": list_of({"type": "string"}, "Consumer groups that move with it."),
        "parts": list_of(_PART),
        "instance_id": _INSTANCE,
        "last": _OUTCOME,
        "batch_ids": list_of({"type": "string"}, "Of the last 128 commits that had one, the oldest first."),
        "stale": _STALE,
        "member_home": {
            "type": ["string", "null"],
            "enum": ["broker", "kproxy", None],
            "description": "Who keeps the data of members that prefer the broker from readers: broker, for all "
            "read_committed consumers, or kproxy, for those that read through it. In the response to initialize.",
        },
    },
    "A transactional id and its transaction.",
)
REJECTED: Final = an_object(
    {"producer_id": {"type": "integer", "minimum": 1, "maximum": _INT64_MAX}}, "A producer id that is rejected."
)
PROBLEM: Final = an_object(
    {
        "type": {"type": "string", "description": "urn:kproxy:error: and the name of the error."},
        "title": {"type": "string", "description": "The name of the error, as Kafka has it."},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, and what to do."},
        "error_code": {"type": "integer", "description": "Kafka's number of the error."},
        "retriable": {"type": "boolean", "description": "Whether the same request may succeed a moment later."},
    },
    "What went wrong (RFC 9457).",
)
