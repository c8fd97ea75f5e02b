"""The topic of kproxy's own transactions (KIP-98's transaction log; here the log alone decides)."""

from typing import Final

from kproxy.config.transaction_options import TransactionOptions
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.own_topic import OwnTopic, TopicPlan

TOPIC: Final = "__kproxy_transaction_state"
_FORGETS: Final = (
    "the transaction log would forget transactions that were committed, and their records would be seen by nobody; "
    "give the topic the setting that it is made with"
)


def transaction_topic(cluster: Cluster, config: TransactionOptions) -> OwnTopic:
    """The topic, as ``config`` has it."""
    return OwnTopic(cluster, transaction_plan(config))


def transaction_plan(config: TransactionOptions) -> TopicPlan:
    """The settings with which the topic is created.

    Only records that a snapshot replaces are deleted. The broker sets the timestamps, because it forgets producers by
    them, and the log is fenced by its producers.
    """
    return TopicPlan(
        name=TOPIC,
        partitions=config.transaction_state_log_num_partitions,
        replicas=config.transaction_state_log_replication_factor,
        replicas_option="transaction.state.log.replication.factor",
        min_isr=config.transaction_state_log_min_isr,
        settings={
            "cleanup.policy": "delete",
            "message.timestamp.type": "LogAppendTime",
            "retention.bytes": "-1",
            "retention.ms": "-1",
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
        wrong={
            "cleanup.policy": _FORGETS,
            "message.timestamp.type": "brokers may take the producers of the transaction log for silent ones too soon, "
            "and so lift its fences; set message.timestamp.type=LogAppendTime",
            "retention.bytes": _FORGETS,
            "retention.ms": _FORGETS,
            "unclean.leader.election.enable": "the transaction log may lose transactions that were committed; set "
            "unclean.leader.election.enable=false",
        },
        refused="no transactions: the cluster refuses the topic in which they are noted; grant what is missing",
        rights="Create, Describe, DescribeConfigs, Read, Write and Delete",
    )
