"""The producer of a task attempt, on librdkafka's own broker in memory."""

import pytest
import trio

from kproxy.codec._generated.produce import (
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.spark.sink_producer import Sender, check, settings
from kproxy.spark.sink_rows import Row
from kproxy.spark.spark_errors import KafkaError, OptionError
from kproxy.testing.fake_broker import Answer, open_fake_cluster
from tests.spark.sink_samples import options

_MOCK = {"test.mock.num.brokers": "1"}


def _rows(count: int, size: int = 10) -> list[Row]:
    return [("t", b"x" * size, b"%d" % number, -1, None, None, 0, None) for number in range(count)]


def test_nothing_is_sent_twice_and_the_user_can_not_change_it() -> None:
    made = settings(options(producer={"linger.ms": "7"}), "c")
    assert made["linger.ms"] == "7"
    assert (made["acks"], made["enable.idempotence"], made["message.send.max.retries"]) == ("all", False, 0)
    assert made["client.id"] == "c"


def test_settings_that_librdkafka_does_not_know_are_named() -> None:
    check(options(producer={"compression.type": "zstd"}))
    with pytest.raises(OptionError, match=r"max\.request\.size"):
        check(options(producer={"max.request.size": "7"}))
    with pytest.raises(OptionError, match=r"compression"):
        check(options(producer={"compression.type": "best"}))


def test_rows_are_acknowledged() -> None:
    sender = Sender(options(producer=_MOCK), "c")
    try:
        assert sender.send(_rows(100)) == 100
        sender.flush()
    finally:
        sender.close()


def test_a_full_queue_is_waited_for() -> None:
    sender = Sender(options(producer={**_MOCK, "message.max.bytes": "2000000"}), "c")
    try:
        assert sender.send(_rows(80, size=1_000_000)) == 80  # more than the queue's 64 MB
        sender.flush()
    finally:
        sender.close()


def test_a_record_that_fails_fails_all() -> None:
    sender = Sender(options(producer=_MOCK, timeout_ms=2000), "c")
    try:
        with pytest.raises(KafkaError, match="a record for t was not written: MSG_SIZE_TOO_LARGE"):
            sender.send(_rows(1, size=2_000_000))
    finally:
        sender.close()


def test_a_kproxy_that_is_not_there_is_reported() -> None:
    sender = Sender(options(bootstrap="127.0.0.1:1", timeout_ms=100, producer={"log_level": "0"}), "c")
    try:
        sender.send(_rows(1))
        with pytest.raises(KafkaError, match=r"a record for t-.* was not written: _MSG_TIMED_OUT|not acknowledged"):
            sender.flush()
    finally:
        sender.close()


@pytest.mark.parametrize(
    ("code", "way_out"),
    [
        (ErrorCode.POLICY_VIOLATION, r"compacted.* transactions\.home"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "give the principal of this query Write on the topic"),
        (ErrorCode.MESSAGE_TOO_LARGE, r"raise kafka\.max\.request\.size of the sink and max\.message\.bytes"),
        (ErrorCode.INVALID_TXN_STATE, "restart of kproxy .* the next run of the task writes all of it"),
    ],
)
async def test_what_to_do_about_a_refusal_is_reported(code: ErrorCode, way_out: str) -> None:
    refused = ProduceResponsePartitionProduceResponse(error_code=code, base_offset=-1)
    answer = ProduceResponse([ProduceResponseTopicProduceResponse("t", partition_responses=[refused])])
    async with open_fake_cluster(1) as fake:
        fake.cluster.create_topic("t", 1)
        fake.cluster.control(ApiKey.PRODUCE, lambda _: Answer(answer))
        sender = Sender(options(bootstrap=fake.bootstrap), "c")
        try:
            sender.send(_rows(1))
            with pytest.raises(KafkaError, match=f"record for t-0 .*{way_out}"):
                await trio.to_thread.run_sync(sender.flush)
        finally:
            sender.close()
