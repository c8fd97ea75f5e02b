import json
import subprocess
import sys

import pytest
import trio
from confluent_kafka import Producer

from kproxy.codec.batch import Record, build_batch
from kproxy.config import ExitCode
from kproxy.testing.fake_broker import FakeServer, open_fake_cluster
from kproxy.testing.fake_broker.transactional_ids import TransactionalId, TxnState
from kproxy.testing.kafka import RealKafka


def leave_open(fake: FakeServer, partition: int, producer_id: int, epoch: int = 0) -> None:
    """A transaction that a coordinator once forgot: its batch is there, and nothing will end it."""
    row = Record(0, fake.cluster.clock(), None, b"x")
    data = build_batch([row], producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True)
    part = fake.cluster.topics["orders"].partitions[partition]
    assert part.log.append(memoryview(data), part.leader_epoch, fake.cluster.clock()).error == 0


async def find(fake: FakeServer, *options: str) -> str:
    command = [sys.executable, "-m", "kproxy", "txn", "find-hanging", "--bootstrap-servers", fake.bootstrap, *options]
    with trio.fail_after(60):
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == ExitCode.OK, done.stderr
    return done.stdout.decode()


async def test_what_no_coordinator_has_hangs() -> None:
    async with open_fake_cluster(2) as fake:
        fake.cluster.create_topic("orders", 3)
        assert "at the brokers: nothing hangs" in await find(fake, "--older-than-ms", "0")
        leave_open(fake, 1, 4000)
        leave_open(fake, 2, 5000)
        found = json.loads(await find(fake, "--older-than-ms", "0", "--json"))
        assert [(row["partition"], row["producer_id"], row["start_offset"]) for row in found["brokers"]] == [
            (1, 4000, 0),
            (2, 5000, 0),
        ]
        assert found["unasked"] == []
        assert "no such socket" in found["kproxy_error"]
        now = fake.cluster.clock()
        etl = TransactionalId(5000, 0, state=TxnState.ONGOING, began_ms=now, places={("orders", 2)})
        fake.cluster.transactional_ids["etl"] = etl
        assert json.loads(await find(fake, "--json"))["brokers"] == []  # both are young
        text = await find(fake, "--older-than-ms", "0")  # the coordinator of the other one will end it
    command = f"kafka-transactions.sh --bootstrap-server {fake.bootstrap} abort --topic orders --partition 1"
    assert f"  {command} --start-offset 0" in text
    assert "partition 2" not in text
    assert "at kproxy: not asked" in text


@pytest.mark.parametrize(
    ("places", "epoch", "hangs"),
    [({("orders", 0)}, 3, False), ({("orders", 0)}, 4, False), ({("orders", 1)}, 3, True), ({("orders", 0)}, 2, True)],
    ids=["its own", "a later epoch ends it, too", "another partition", "an earlier epoch's marker is refused"],
)
async def test_a_coordinator_ends_what_it_has_in_this_partition_under_no_earlier_epoch(
    places: set[tuple[str, int]], epoch: int, hangs: bool
) -> None:
    async with open_fake_cluster(2) as fake:
        fake.cluster.create_topic("orders", 2)
        leave_open(fake, 0, 5000, epoch=3)
        now = fake.cluster.clock()
        etl = TransactionalId(5000, epoch, state=TxnState.ONGOING, places=places, began_ms=now)
        fake.cluster.transactional_ids["etl"] = etl
        found = json.loads(await find(fake, "--older-than-ms", "0", "--json"))
    assert bool(found["brokers"]) is hangs


async def test_a_transaction_that_has_ended_at_its_coordinator_hangs() -> None:
    async with open_fake_cluster(2) as fake:
        fake.cluster.create_topic("orders", 1)
        leave_open(fake, 0, 5000)
        fake.cluster.transactional_ids["etl"] = TransactionalId(5000, 0, state=TxnState.COMPLETE_COMMIT)
        found = json.loads(await find(fake, "--older-than-ms", "0", "--json"))
    assert [row["producer_id"] for row in found["brokers"]] == [5000]


@pytest.mark.kafka
def test_on_a_real_kafka_what_its_coordinator_will_end_does_not_hang(kafka: RealKafka) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "hanging"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("hanging", b"x")
    producer.flush(60)
    command = [sys.executable, "-m", "kproxy", "txn", "find-hanging", "--bootstrap-servers", kafka.bootstrap, "--json"]
    done = subprocess.run([*command, "--older-than-ms", "0"], capture_output=True, text=True, timeout=60, check=True)
    producer.abort_transaction(60)
    found = json.loads(done.stdout)
    assert (found["brokers"], found["unasked"]) == ([], [])
