"""Released clients in transactions, as processes, against a fake broker that has transactions of its own."""

from pathlib import Path
from time import monotonic_ns

import pytest
import trio

from kproxy.codec.messages import ApiKey
from kproxy.testing.fake_broker.controls import CloseAfter
from kproxy.testing.fake_broker.fake_cluster import ClusterConfig
from kproxy.testing.fake_broker.fake_server import open_fake_cluster
from tests.net.harness import eventually, proxied
from verification.chaos.recorder import Recorder
from verification.chaos.released import JAVA_0_10, KAFKA_PYTHON, ReleasedClient, ReleasedProducer
from verification.history import AnomalyKind, Kind, Outcome, check, read_history

TOPICS = {"t": 2}
COPIER = {"name": "copier", "places": [["t", 0], ["t", 1]], "transactional_id": "id"}


async def until_acknowledged(recorder: Recorder, count: int) -> None:
    await eventually(lambda: recorder.records[Outcome.OK] >= count)


async def test_transactions_and_what_is_read_of_them_make_a_clean_history(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        async with open_fake_cluster(config=ClusterConfig(num_partitions=2)) as cluster:

            def released(driver: str, **job: object) -> ReleasedProducer:
                return ReleasedProducer(ReleasedClient(driver, job), cluster.bootstrap, recorder, tmp_path)

            copier = released("librdkafka_transactions", **COPIER)
            reader = released("committed_reader", name="reader", topics=TOPICS, final=False)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(copier.run)
                nursery.start_soon(reader.run)
                await until_acknowledged(recorder, 10)
                cluster.cluster.control(ApiKey.END_TXN, lambda _: CloseAfter(), times=2)
                await until_acknowledged(recorder, 30)
                copier.stop()
                reader.stop()
            end = released("committed_reader", name="end", topics=TOPICS, final=True)
            end.stop()
            await end.run()
        recorder.flush()
        history = list(read_history(recorder.path))
    assert check(history) == []
    assert recorder.unexpected == {}
    assert all(operation.asked for operation in history if operation.outcome is Outcome.OK and operation.sends)
    assert {operation.process for operation in history if operation.kind is Kind.POLL} == {"reader", "end"}


@pytest.mark.java
@pytest.mark.parametrize(
    ("driver", "requirements"), [("java010/PlainProducer.java", JAVA_0_10), ("sarama", ())], ids=["java-0.10", "sarama"]
)
async def test_what_plain_producers_wrote_down_is_a_clean_history(
    driver: str, requirements: tuple[str, ...], tmp_path: Path
) -> None:
    job = {"name": "producer", "places": [["t", 0], ["t", 1]], "per_second": 200, "in_flight": 1}
    with Recorder(tmp_path) as recorder:
        async with proxied() as proxy:
            proxy.brokers.create_topic("t", 2)
            client = ReleasedClient(driver, job, requirements)
            producer = ReleasedProducer(client, f"127.0.0.1:{proxy.port}", recorder, tmp_path)
            await producer.install()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(producer.run)
                await until_acknowledged(recorder, 50)
                producer.stop()
        recorder.flush()
        history = list(read_history(recorder.path))
    sends = [send for operation in history for send in operation.sends]
    assert {operation.outcome for operation in history} == {Outcome.OK}
    assert sorted(send.offset for send in sends if send.partition == 0) == list(range((len(sends)) // 2))
    assert len({send.value for send in sends}) == len(sends)
    assert all(operation.invoke <= (operation.complete or 0) <= monotonic_ns() for operation in history)


async def test_the_old_reader_takes_control_records_for_data_where_a_broker_sends_them(tmp_path: Path) -> None:
    """So it would see those that kproxy lets through."""
    with Recorder(tmp_path) as recorder:
        async with open_fake_cluster(config=ClusterConfig(num_partitions=2)) as cluster:

            def released(driver: str, *requirements: str, **job: object) -> ReleasedProducer:
                client = ReleasedClient(driver, job, requirements)
                return ReleasedProducer(client, cluster.bootstrap, recorder, tmp_path)

            copier = released("librdkafka_transactions", **COPIER)
            reader = released("old_reader", *KAFKA_PYTHON, name="old", topics=TOPICS, uncommitted=True)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(copier.run)
                await until_acknowledged(recorder, 10)
                nursery.start_soon(reader.run)
                await eventually(lambda: recorder.polled > 10)
                copier.stop()
                reader.stop()
        recorder.flush()
        history = list(read_history(recorder.path))
    polled = [operation for operation in history if operation.polls]
    assert polled
    assert all(operation.uncommitted for operation in polled)
    unsent = [anomaly for anomaly in check(history) if anomaly.kind is AnomalyKind.UNSENT]
    assert {anomaly.value for anomaly in unsent} == {"\0\0\0\0\0\0"}
