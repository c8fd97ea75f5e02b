"""The topic in which kproxy records its lanes: compacted, and what nobody writes again is deleted."""

from zlib import crc32

from kproxy.config.retry_options import RetryOptions
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.own_topic import OwnTopic, TopicPlan

TOPIC = "__kproxy_producer_state"
#: The smallest that Kafka 4 allows: compaction leaves the last segment alone, so a small one keeps what a restarted
#: kproxy has to read short.
_SEGMENT_BYTES = 1 << 20
#: A segment is deleted when its newest entry has expired. If compaction merges it with a younger one before that, what
#: has expired stays, for as long as somebody writes. So no segment ends by its time before the former one has expired.
#: Those that end by their size are merged, and keep up to ``_SEGMENT_BYTES`` of what has expired; nobody reads that.
_SEGMENT_TIME = 8 / 7
_ALTER = "see docs/operations.md: alter the topic when all instances run this version"


def partition_of(instance_id: str, partitions: int) -> int:
    """The partition of an instance.

    Fixed for ever: under another rule a restarted or upgraded kproxy would look for its former lanes in a partition
    where they are not. For the same reason the topic's partitions must not be raised. CRC-32 is the same everywhere,
    and it need not spread better than a few hundred names.
    """
    return crc32(instance_id.encode()) % partitions


def lane_topic(cluster: Cluster, config: RetryOptions) -> OwnTopic:
    """The topic, as ``config`` has it."""
    return OwnTopic(cluster, lane_plan(config))


def lane_plan(config: RetryOptions) -> TopicPlan:
    """What it is made like."""
    retention_ms = config.producer_state_log_retention_ms
    return TopicPlan(
        name=TOPIC,
        partitions=config.producer_state_log_num_partitions,
        replicas=config.producer_state_log_replication_factor,
        replicas_option="producer.state.log.replication.factor",
        min_isr=config.producer_state_log_min_isr,
        settings={
            "cleanup.policy": "compact,delete",
            # By one clock, whatever those of the hosts say.
            "message.timestamp.type": "LogAppendTime",
            "retention.ms": str(retention_ms),
            "segment.bytes": str(_SEGMENT_BYTES),
            "segment.ms": str(int(retention_ms * _SEGMENT_TIME)),
            "unclean.leader.election.enable": "false",
        },
        wrong={},
        costly={
            "cleanup.policy": "topic keeps entries of instances that never return, or more than one of each producer "
            f"id; {_ALTER}",
            "message.timestamp.type": f"topic keeps entries of instances that never return; {_ALTER}",
        },
        refused="no crash recovery: the cluster refuses the topic in which producer ids are noted, so retries after a "
        "crash of kproxy may become duplicates; grant what is missing and restart kproxy, or set "
        "crash.recovery.enable to false",
        rights="Create, Describe, DescribeConfigs, Read and Write",
    )
