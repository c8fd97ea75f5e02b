"""What the fake broker leaves out, said in one place."""

from typing import Final

NOT_MODELLED: Final = (
    "transactions: AddPartitionsToTxn, AddOffsetsToTxn, EndTxn and TxnOffsetCommit are not served; a transactional "
    "batch is always refused; the last stable offset is the high watermark and no aborted list is sent",
    "replication: all replicas share one log, so nothing acknowledged is lost, the high watermark is the log's end, "
    "min.insync.replicas, unclean elections and divergent epochs do not exist; a follower never serves a Fetch",
    "fetch sessions: every answer has session 0, as from a broker whose session cache is full",
    "groups: only the classic protocol; static members are treated as dynamic ones; no initial rebalance delay; "
    "a consumer's subscription is not parsed (a real coordinator never completes a join with a damaged one); "
    "committed offsets do not expire",
    "storage: no retention, compaction, segments, tiers or disk errors; topic settings other than the few read by "
    "the log are kept and ignored; compression.type recompresses nothing",
    "record validation: a batch's header, checksum and record count are checked, its records are not decoded; "
    "message.timestamp.before.max.ms and after.max.ms are not applied",
    "security, quotas, throttling, authorized operations, client telemetry, racks, controllers as separate nodes",
    "APIs of other groups (consumer, share, streams), reassignment, ACLs, features, quorum: not advertised",
)
"""Differences between the fake and a real Kafka 4.3.0 that a test must not lean on."""
