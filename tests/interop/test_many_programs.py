"""Ten programs that have the client.id of all that choose none write at the same time, end, and start again."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from kproxy.codec.batch import iter_records
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.interop.proxy import KproxyProcess

pytestmark = [pytest.mark.kafka, pytest.mark.java]

_TOPIC: Final = "many-programs"
_PROGRAMS: Final = 10
_PARTITIONS: Final = 6
_SECONDS: Final = 5
_PATIENCE_SECONDS: Final = 30
#: librdkafka without idempotence, one record for each request, as fast as responses come.
_PROGRAM: Final = """
import json, sys, time
from confluent_kafka import Producer

bootstrap, topic, name, partitions, seconds, patience = json.loads(sys.argv[1])
done, failed = 0, []

def told(error, _):
    global done
    done += 1
    if error is not None:
        failed.append(str(error))

producer = Producer(
    {"bootstrap.servers": bootstrap, "linger.ms": 0, "message.timeout.ms": 1000 * patience, "enable.idempotence": False}
)
end, sent = time.monotonic() + seconds, 0
while time.monotonic() < end:
    producer.produce(topic, value=f"{name} {sent}", partition=sent % partitions, on_delivery=told)
    sent += 1
    producer.poll(0.05)
left = producer.flush(2 * patience)
print(json.dumps({"sent": sent, "done": done, "failed": failed, "left": left}))
"""


def _written(bootstrap: str, name: str) -> int:
    """The records that programs wrote side by side, all of which were acknowledged in time."""
    programs = []
    for number in range(_PROGRAMS):
        job = bootstrap, _TOPIC, f"{name}{number}", _PARTITIONS, _SECONDS, _PATIENCE_SECONDS
        command = [sys.executable, "-c", _PROGRAM, json.dumps(job)]
        programs.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    total = 0
    for program in programs:
        said, _ = program.communicate(timeout=4 * _PATIENCE_SECONDS)
        result = json.loads(said)
        assert (result["failed"], result["left"], result["done"]) == ([], 0, result["sent"])
        total += result["sent"]
    return total


def test_each_record_is_acknowledged_in_time_and_written_once(kafka: RealKafka, tmp_path: Path) -> None:
    """When they start again, thousands of small batches of the first ones may still be repeated."""
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic(_TOPIC, _PARTITIONS)
    with KproxyProcess(kafka.bootstrap, tmp_path / "log") as kproxy:
        total = sum(_written(kproxy.bootstrap, name) for name in ("first ", "second "))
        kproxy.check()
    with ClusterClient(kafka.bootstrap) as client:
        logs = [client.read_all(_TOPIC, partition) for partition in range(_PARTITIONS)]
    values = [row.value for one in logs for row in iter_records(one, max_decompressed_bytes=1 << 20)]
    assert len(values) == len(set(values)) == total
