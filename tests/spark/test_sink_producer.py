"""The producer of a task attempt: what reaches the brokers, and what fails."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from kproxy.codec._generated.produce import (
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.batch import Record, iter_records
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.spark.key_hash import key_hashes
from kproxy.spark.record_encoding import Packing, Rows
from kproxy.spark.security_options import security
from kproxy.spark.sink_producer import Sender, Spread
from kproxy.spark.sink_rows import Columns
from kproxy.spark.spark_errors import KafkaError
from kproxy.testing.fake_broker import Answer, Close, SaslRules
from tests.spark.fake_cluster import Fake, fake_cluster
from tests.spark.sink_samples import batch, options

_VALUE: Final = Columns(value=0, key=None, headers=None, topic=None, partition=None, timestamp=None)
_ALL: Final = Columns(value=0, key=1, headers=None, topic=3, partition=2, timestamp=None)
_PARTITIONS: Final = 3
_ANN: Final = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" '
    'password="s3cret";',
}


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_cluster(brokers=2) as running:
        with running.client() as client:
            for name in ("out", "other"):
                client.create_topic(name, _PARTITIONS)
        yield running


def _sender(fake: Fake, columns: Columns = _VALUE, **changes: Any) -> Sender:
    given = options(bootstrap=fake.bootstrap, retry_ms=5000, timeout_ms=5000, **changes)
    return Sender(given, columns, "me", lambda: 1.5)


def _rows(*rows: tuple[str, str | None, int | None, str]) -> pa.RecordBatch:
    values, keys, partitions, topics = zip(*rows, strict=True)
    return pa.record_batch(
        {
            "value": pa.array(values),
            "key": pa.array(keys, pa.string()),
            "partition": pa.array(partitions, pa.int32()),
            "topic": pa.array(topics),
        }
    )


def _log(fake: Fake, topic: str) -> dict[int, list[Record]]:
    with fake.client() as client:
        found = {partition: client.read_all(topic, partition) for partition in range(_PARTITIONS)}
    return {each: list(iter_records(data, max_decompressed_bytes=1 << 30)) for each, data in found.items()}


def test_rows_are_acknowledged_and_have_the_time_of_their_sending(fake: Fake) -> None:
    sender = _sender(fake)
    assert sender.send(batch("a", "b")) == 2
    assert sender.send(batch("c")) == 1
    sender.flush()
    sender.close()
    (found,) = filter(None, _log(fake, "out").values())
    assert [(record.value, record.key, record.timestamp) for record in found] == [
        (b"a", None, 1500),
        (b"b", None, 1500),
        (b"c", None, 1500),
    ]


def test_a_row_goes_to_its_partition_and_topic_else_where_its_key_goes(fake: Fake) -> None:
    sender = _sender(fake, _ALL, topic=None)
    made = _rows(("a", None, 2, "out"), ("b", "k", 0, "other"), ("c", "abc", None, "out"), ("d", "abc", 1, "out"))
    sender.send(made)
    sender.flush()
    sender.close()
    by_key = 479470107 % _PARTITIONS  # of Java's hash
    expected = {partition: list[bytes | None]() for partition in range(_PARTITIONS)}
    for value, partition in ((b"a", 2), (b"c", by_key), (b"d", 1)):
        expected[partition].append(value)
    assert {partition: [each.value for each in log] for partition, log in _log(fake, "out").items()} == expected
    assert [each.value for each in _log(fake, "other")[0]] == [b"b"]


def test_many_rows_stay_in_order_and_none_is_lost(fake: Fake) -> None:
    sender = _sender(fake, replace(_VALUE, key=1), packing=Packing(batch_bytes=2000), request_bytes=5000)
    for start in range(0, 20_000, 5_000):
        keys = [str(number % 7) for number in range(start, start + 5_000)]
        values = [f"{number} {'x' * 500}" for number in range(start, start + 5_000)]
        sender.send(pa.record_batch({"value": values, "key": keys}))
    sender.flush()
    sender.close()
    found = _log(fake, "out")
    numbers = {partition: [int((each.value or b"").split()[0]) for each in log] for partition, log in found.items()}
    assert sorted(number for log in numbers.values() for number in log) == list(range(20_000))
    for partition, log in numbers.items():
        by_key = {key: [number for number in log if number % 7 == key] for key in range(7)}
        assert all(each == sorted(each) for each in by_key.values())
        keys = {key for key, each in by_key.items() if each}
        assert all(key_hashes(pa.array([b"%d" % key]))[0] % _PARTITIONS == partition for key in keys)


def test_a_record_that_is_too_large_is_not_sent(fake: Fake) -> None:
    sender = _sender(fake, request_bytes=1000)
    sender.send(batch("x" * 2000))
    with pytest.raises(
        KafkaError, match=r"a record for out-\d was not written: it takes up to \d+ bytes, and kafka.max"
    ):
        sender.flush()
    sender.close()


def test_a_partition_that_does_not_exist_is_named(fake: Fake) -> None:
    sender = _sender(fake, _ALL, topic=None)
    sender.send(_rows(("a", None, 3, "out")))
    with pytest.raises(KafkaError, match="a record for out-3 was not written: the topic has 3 partitions"):
        sender.flush()
    sender.close()


def test_a_kproxy_that_is_not_there_is_reported() -> None:
    sender = Sender(options(bootstrap="127.0.0.1:1", retry_ms=100), _VALUE, "me")
    sender.send(batch("a"))
    with pytest.raises(KafkaError, match=r"cannot connect to 127\.0\.0\.1:1"):
        sender.flush()
    sender.close()


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (ErrorCode.POLICY_VIOLATION, r"POLICY_VIOLATION.*compacted.* transactions\.home"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "give the principal of this query Write on the topic"),
        (ErrorCode.INVALID_TXN_STATE, "restart of kproxy .* the next run of task or query writes all of it"),
    ],
)
def test_what_is_refused_is_not_sent_again_and_the_error_says_what_to_do(fake: Fake, code: ErrorCode, why: str) -> None:
    asked = Counter[str]()

    def refuse(_: Any) -> Answer:
        asked["produce"] += 1
        refused = ProduceResponsePartitionProduceResponse(error_code=code, base_offset=-1)
        return Answer(ProduceResponse([ProduceResponseTopicProduceResponse("out", partition_responses=[refused])]))

    fake.on(ApiKey.PRODUCE, refuse)
    sender = _sender(fake)
    sender.send(batch("a"))
    with pytest.raises(KafkaError, match=f"record for out-0 .*{why}"):
        sender.flush()
    sender.close()
    assert asked["produce"] == 1


def test_a_connection_that_ends_fails_the_rows(fake: Fake) -> None:
    fake.on(ApiKey.PRODUCE, lambda _: Close())
    sender = _sender(fake)
    sender.send(batch("a"))
    with pytest.raises(KafkaError, match="no answer from 127"):
        sender.flush()
    sender.close()


def test_a_login_that_ends_is_renewed_and_nothing_is_lost_or_doubled() -> None:
    rules = SaslRules(users={"ann": "s3cret"}, max_reauth_ms=400)
    with fake_cluster(brokers=2, sasl=rules) as fake:
        fake.do(lambda server: server.cluster.create_topic("out", _PARTITIONS))
        sender = _sender(fake, replace(_VALUE, key=0), security=security(_ANN), request_bytes=200)
        for number in range(8):
            sender.send(batch(*(f"{number}-{each}" for each in range(20))))
            sender._send_waiting()
            time.sleep(0.1)
        sender.flush()
        sender.close()
        parts = fake.do(lambda server: server.cluster.topics["out"].partitions)
        logs = [part.log.read(0, 1 << 30, whole_first_batch=True) for part in parts]
    values = [each.value or b"" for log in logs for each in iter_records(log, max_decompressed_bytes=1 << 30)]
    assert sorted(values) == sorted(b"%d-%d" % (number, each) for number in range(8) for each in range(20))


def test_rows_without_a_key_fill_one_batch_after_the_other() -> None:
    count, size = 3000, 100
    rows = Rows(pa.array([b"x" * size] * count), None, None, np.zeros(count, np.int64), None)
    chosen = Spread(batch_bytes=size * 1000).choose(rows, 5).tolist()
    runs = [partition for at, partition in enumerate(chosen) if not at or chosen[at - 1] != partition]
    assert len(runs) == 5
    assert sorted(runs) == list(range(5))


def test_small_attempts_begin_anywhere() -> None:
    rows = Rows(pa.array([b"x"]), None, None, np.zeros(1, np.int64), None)
    assert len({int(Spread(1000).choose(rows, 100)[0]) for _ in range(50)}) > 10
