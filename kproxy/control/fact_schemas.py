"""What the operations that change nothing answer, as JSON Schema: made of the types in ``kproxy.proxy.facts``."""

from types import NoneType
from typing import Any, Final, get_args, get_origin, get_type_hints

from kproxy.control.json_schema import Schema, an_object, list_of
from kproxy.proxy import facts

_MOMENTS: Final = ("announced_ms", "at_ms", "connected_ms", "last_seen_ms", "now_ms", "since_ms", "started_ms")
_PLAIN: Final[dict[Any, Schema]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "minimum": 0},
    float: {"type": "number", "minimum": 0},
    dict[str, int]: {"type": "object", "additionalProperties": {"type": "integer"}},
}
#: Of the facts that are parts of others.
_PARTS: Final[dict[Any, Schema]] = {}


def _field(name: str, hint: Any) -> Schema:
    if name.endswith("_ms") and float not in get_args(hint):
        if name not in _MOMENTS:
            return {**_PLAIN[int], "description": "ms."}
        kind: Any = ["integer", "null"] if NoneType in get_args(hint) else "integer"
        return {"type": kind, "description": "ms since 1970."}
    if get_origin(hint) is list:
        return list_of(_field("", get_args(hint)[0]))
    if NoneType in get_args(hint):
        inner = _field("", get_args(hint)[0])
        return {key: value for key, value in inner.items() if key != "minimum"} | {"type": [inner["type"], "null"]}
    return _PLAIN[hint] if hint in _PLAIN else _PARTS[hint]


def _schema(fact: type, description: str, **more: str | Schema) -> Schema:
    """The schema of a fact; ``more`` about its fields: descriptions, or what the type does not say."""
    properties = {name: _field(name, hint) for name, hint in get_type_hints(fact).items()}
    for name, added in more.items():
        properties[name] = {**properties[name], **({"description": added} if isinstance(added, str) else added)}
    return an_object(properties, description)


_PARTS[facts.Failure] = _schema(facts.Failure, "What went wrong last; null if nothing did.")
_PARTS[facts.Traffic] = _schema(
    facts.Traffic, "Bytes from and to clients, and answered requests, each a second over the last two seconds."
)
_PARTS[facts.ClientError] = _schema(facts.ClientError, "An error of a client, which may have disconnected.")
_PARTS[facts.TransactionsFact] = _schema(
    facts.TransactionsFact,
    "Transactions that kproxy decides; commits, aborts and losses of records of the transaction log since the start.",
)
_LATENCY: Final = "Of Produce requests in these minutes, ms: estimated within a bucket, as by histogram_quantile."
_PARTS[facts.History] = _schema(
    facts.History,
    "The last minutes, oldest first, one figure for each interval.",
    produce_p50_ms=_LATENCY,
    produce_p99_ms=_LATENCY,
)
_PARTS[facts.LegacyClient] = _schema(
    facts.LegacyClient,
    "A client that Kafka 4 would refuse, whether it is still connected or not.",
    requests="In versions that Kafka 4 removed, since the start.",
    removed='What it used of them, as "Produce v2".',
    connections="Open now; 0: the client has left.",
    last_seen_ms="Of its last request in such a version, to about 2 s, ms since 1970; 0: not known.",
)
_PARTS[facts.Trouble] = _schema(
    facts.Trouble,
    "Something that is wrong now.",
    detail="The reason, and what comes next; may be empty.",
    severe="Clients are hindered now; otherwise a warning.",
)

_PARTS[facts.InstanceFact] = _schema(
    facts.InstanceFact,
    "An instance, as it announced itself last.",
    old="Another instance has a newer version.",
    http="Of its status page; empty if there is none.",
    problems="What is wrong there, in words; empty if nothing is.",
)
_PARTS[facts.FleetClient] = _schema(
    facts.FleetClient,
    "A client that Kafka 4 would refuse, of all instances at which it was.",
    requests="In versions that Kafka 4 removed, since the starts of these instances.",
    removed='What it used of them, as "Produce v2".',
)
FLEET: Final = _schema(
    facts.FleetFact,
    "All instances on the same brokers that announce themselves.",
    announces="Whether this instance announces itself.",
    incomplete="Not all announcements could be read in time.",
    ignored="Entries of the topic that are no announcements.",
    connections="Of clients, at all instances.",
    instances="At most 500; those in trouble first.",
    legacy_clients="At most 500, the busiest first; each instance names 20.",
)
STATUS: Final = _schema(
    facts.Status,
    "The whole in short.",
    ready="Whether clients are served; if not, reasons says why.",
    troubles="What is wrong now; what hinders clients comes first.",
    brokers_up="Brokers that answer.",
    brokers_known="Brokers that were ever named.",
    lanes="Producer ids in use.",
    in_flight="Stamped batches in flight.",
    in_doubt="Batches whose clients may not have received the response.",
    unacknowledged_ms="Age of the oldest batch without an outcome, ms.",
    records_matched="Records recognised as retries; each would be a duplicate.",
    records_matched_untimed="Of these, records without an equal timestamp: equal new records may be among them.",
    lost_records="Acknowledged records that logs were found not to hold any more.",
    refusals="By reason, since the start.",
    connections_refused="By reason, since the start.",
    broker_errors="By kind, since the start.",
    recent_errors="The newest of each client.",
    legacy_clients="At most 100: the busiest that are connected, then those that left last.",
    legacy_total="Clients that Kafka 4 would refuse, since the start.",
)
_CLIENT: Final = _schema(
    facts.ClientFact,
    "All connections with one client.id, host, principal and software.",
    software_name="From ApiVersions v3 or later (KIP-511); else empty.",
    versions="By API the version that was used last.",
    requests="Answered on these connections.",
)
_LANE: Final = _schema(
    facts.LaneFact,
    "A producer id of kproxy's own and the client that writes under it.",
    producer_id="kproxy's own; null: the producer id was given up.",
    state={"enum": ["leased", "resting", "given up"]},
    unacknowledged_ms="Age of its oldest batch without an outcome, ms.",
    in_doubt="Of its producer; the same for all its lanes.",
)
_PARTS[facts.BrokerDown] = _schema(
    facts.BrokerDown,
    "Since when and why the broker is down; null if it is up.",
    next="What kproxy does until it is up again.",
)
_BROKER: Final = _schema(
    facts.BrokerFact,
    "A broker as this kproxy sees it.",
    up="Whether the last Metadata response named it, and it answered when it was asked last.",
    release="The release of Kafka that it is most like.",
    features="Finalized, as transaction.version (KIP-584).",
    port="Of kproxy, for this broker.",
    connections="Of clients, relayed to it.",
)


def _listed(name: str, row: Schema) -> Schema:
    total = {**_PLAIN[int], "description": "All; at most 500 are listed."}
    return an_object({"total": total, name: list_of(row)}, f"The {name}.")


CLIENTS: Final = _listed("clients", _CLIENT)
LANES: Final = _listed("lanes", _LANE)
BROKERS: Final = _listed("brokers", _BROKER)
