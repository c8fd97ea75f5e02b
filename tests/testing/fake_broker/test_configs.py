"""The settings that the fake tells agree with what it does."""

from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.configs import BROKER_DEFAULTS, TOPIC_DEFAULTS
from kproxy.testing.fake_broker.fake_cluster import ClusterConfig
from kproxy.testing.fake_broker.partition_log import Appended, PartitionLog


def test_the_broker_defaults_are_those_of_a_fresh_cluster() -> None:
    config = ClusterConfig()
    assert BROKER_DEFAULTS["num.partitions"] == str(config.num_partitions)
    assert BROKER_DEFAULTS["min.insync.replicas"] == str(config.min_insync_replicas)
    assert BROKER_DEFAULTS["default.replication.factor"] == str(config.default_replication_factor)
    assert BROKER_DEFAULTS["producer.id.expiration.ms"] == str(config.producer_id_expiration_ms)
    assert BROKER_DEFAULTS["auto.create.topics.enable"] == str(config.auto_create_topics).lower()


def test_a_log_behaves_the_same_without_settings_and_with_the_defaults() -> None:
    limit = int(TOPIC_DEFAULTS["max.message.bytes"])
    overhead = len(build_batch([Record(0, 5, None, bytes(limit // 2))])) - limit // 2
    fits = memoryview(build_batch([Record(0, 5, None, bytes(limit - overhead - 8))]))
    too_large = memoryview(build_batch([Record(0, 5, None, bytes(limit))]))
    for log in (PartitionLog({}), PartitionLog(TOPIC_DEFAULTS)):
        assert log.append(fits, 0, now=9) == Appended(ErrorCode.NONE, 0, end_offset=1)
        assert log.append(too_large, 0, now=9).error is ErrorCode.MESSAGE_TOO_LARGE
