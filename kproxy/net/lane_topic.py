"""The compacted topic in which kproxy notes its lanes."""

from zlib import crc32

from kproxy.config.retry_options import RetryOptions
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.own_topic import OwnTopic, TopicPlan

TOPIC = "__kproxy_producer_state"
#: Compaction leaves the last segment alone: a small one keeps what a restarted kproxy has to read short.
_SEGMENT_BYTES = 16 << 20


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
    return TopicPlan(
        name=TOPIC,
        partitions=config.producer_state_log_num_partitions,
        replicas=config.producer_state_log_replication_factor,
        replicas_option="producer.state.log.replication.factor",
        min_isr=config.producer_state_log_min_isr,
        settings={
            "cleanup.policy": "compact",
            "segment.bytes": str(_SEGMENT_BYTES),
            "unclean.leader.election.enable": "false",
        },
        wrong={
            "cleanup.policy": "topic is not compacted: it may forget producer ids, or never end; "
            "set cleanup.policy=compact"
        },
        refused="no crash recovery: the cluster refuses the topic in which producer ids are noted, so retries after a "
        "crash of kproxy may become duplicates; grant what is missing and restart kproxy, or set "
        "crash.recovery.enable to false",
        rights="Create, Describe, DescribeConfigs, Read and Write",
    )
