"""One client's run: all its codecs written, half of it read and committed, the rest read by a new process."""

import base64
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop import records
from tests.interop.catalog import GZIP, NEWEST, Client
from tests.support.clients import run_driver
from tests.support.patience import PATIENCE_S

STEP_TIMEOUT_MS: Final = 60_000
"""librdkafka wants no more for a record than for its transaction, a minute."""
EXTRA_MS: Final = 500
"""How long a client that has read everything waits for records that should not come."""
GOLDEN: Final = {"plain": GZIP, "snappy": ("snappy",), "lz4": ("lz4",), "zstd": ("zstd",)}
"""Topics that the newest client writes for all others to read, by the codecs in them."""
QUIET: Final = logging.Logger("librdkafka", logging.CRITICAL)
"""For clients of this process that lose connections by design."""
_GOLDEN_FIELDS: Final = replace(NEWEST.can, null_headers=False)
"""kafka-python 1.4 dies of a header without a value."""


@dataclass
class Run:
    """What one client wrote and read."""

    topic: str
    arrival_ms: tuple[int, int]
    sent: list[records.Record]
    acked: list[list[int]] | None
    read: list[records.Record] = field(default_factory=list)
    golden: dict[str, list[records.Record]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def asked(request: pytest.FixtureRequest, parameter: str) -> list[Any]:
    """The values of a parameter in those tests of a module that are to run."""
    items = [item for item in request.session.items if item.path == request.path]
    values = [item.callspec.params.get(parameter) for item in items if hasattr(item, "callspec")]
    return [value for value in values if value is not None]


def now_ms() -> int:
    return int(time.time() * 1000)


def create_topics(
    bootstrap: str,
    names: Iterable[str],
    replication: int = 1,
    config: Mapping[str, str] | None = None,
    places: Sequence[Sequence[int]] = (),
) -> None:
    """Create topics with three partitions, by the broker itself.

    :param places: the brokers of each partition's replicas, the leader first; else the broker chooses them.
    """
    more: dict[str, Any] = {"replication_factor": replication}
    if places:
        more = {"replica_assignment": [list(nodes) for nodes in places]}
    wanted = [NewTopic(name, records.PARTITIONS, config=dict(config or {}), **more) for name in names]
    # Kept in a variable: its futures die with the client.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(wanted).values():
        future.result(PATIENCE_S)


def produce_step(topic: str, codec: str, batch: list[records.Record]) -> dict[str, Any]:
    return {"op": "produce", "topic": topic, "codec": codec, "records": batch, "timeout_ms": STEP_TIMEOUT_MS}


def consume_step(topic: str, group: str, count: int, extra_ms: int = 0) -> dict[str, Any]:
    timing = {"timeout_ms": STEP_TIMEOUT_MS, "extra_ms": extra_ms}
    return {"op": "consume", "topic": topic, "group": group, "count": count, **timing}


def raw(batch: list[records.Record]) -> list[dict[str, Any]]:
    """Return records as arguments for confluent-kafka's `produce`."""
    return [
        {
            "partition": record["p"],
            "key": _bytes(record["k"]),
            "value": _bytes(record["v"]),
            "timestamp": record["ts"],
            "headers": [(name, _bytes(data)) for name, data in record["h"]],
        }
        for record in batch
    ]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def write_golden(bootstrap: str, prefix: str) -> dict[str, list[records.Record]]:
    """Let the newest client fill the golden topics; return what it wrote, by topic."""
    now = now_ms()
    topics: dict[str, list[records.Record]] = {}
    steps = []
    for name, codecs in GOLDEN.items():
        topics[f"{prefix}.{name}"] = []
        for codec in codecs:
            batch = records.make(f"golden.{name}", codec, _GOLDEN_FIELDS, now - 3_600_000)
            topics[f"{prefix}.{name}"] += batch
            steps.append(produce_step(f"{prefix}.{name}", codec, batch))
    for result in run_driver(NEWEST.install(), job(bootstrap, NEWEST.options, steps)):
        assert "error" not in result, result["error"]
    return topics


def job(bootstrap: str, options: Mapping[str, Any], steps: list[dict[str, Any]]) -> dict[str, Any]:
    return {"bootstrap": bootstrap, "options": dict(options), "steps": steps}


def run_client(client: Client, bootstrap: str, topic: str, golden: Mapping[str, list[records.Record]]) -> Run:
    """Let a client write to its topic and read it in two processes; the second reads the golden topics too."""
    command = client.install()
    began = now_ms()
    batches = {codec: records.make(client.name, codec, client.can, began - 1_800_000) for codec in client.can.codecs}
    sent = [record for batch in batches.values() for record in batch]
    half = len(sent) // 2 + 1
    steps = [produce_step(topic, codec, batch) for codec, batch in batches.items()]
    steps.append(consume_step(topic, f"group.{topic}", half))
    first = run_driver(command, job(bootstrap, client.options, steps))
    run = Run(topic, (began, now_ms()), sent, [])
    for codec, result in zip(batches, first, strict=False):
        _note(run, f"produce {codec}", result)
        acked = result.get("acked")
        run.acked = None if acked is None or run.acked is None else run.acked + acked
    _note(run, "consume the first half", first[-1])
    run.read += first[-1].get("records") or []
    steps = [consume_step(topic, f"group.{topic}", len(sent) - half, EXTRA_MS)]
    steps += [consume_step(name, f"group.{topic}", len(written)) for name, written in golden.items()]
    second = run_driver(command, job(bootstrap, client.options, steps))
    _note(run, "consume the second half", second[0])
    run.read += second[0].get("records") or []
    for name, result in zip(golden, second[1:], strict=True):
        _note(run, f"consume {name}", result)
        run.golden[name] = result.get("records") or []
    return run


def _note(run: Run, step: str, result: Mapping[str, Any]) -> None:
    if "error" in result:
        run.errors[step] = result["error"]
    elif result.get("timed_out"):
        run.errors[step] = f"only {len(result.get('records') or [])} records in {STEP_TIMEOUT_MS} ms"


def readable(client: Client, topics: Mapping[str, list[records.Record]], transcoding: bool) -> dict[str, Any]:
    """Return the golden topics whose codecs a client reads, by itself or (`transcoding`) by kproxy's re-encoding."""
    codecs = {*client.can.reads, *(client.can.recoded if transcoding else ())}
    chosen = [name for name, used in GOLDEN.items() if codecs.issuperset(used)]
    return {topic: written for topic, written in topics.items() if topic.rsplit(".", 1)[1] in chosen}
