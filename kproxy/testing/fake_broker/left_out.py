"""What the fake broker leaves out, said in one place."""

from typing import Final

NOT_MODELLED: Final = (
    "transactions: markers are written at once, or when a test lets them (hold_markers), and do not wait for replicas; "
    "a transaction that takes too long is aborted by the first request of anybody that comes then (a real coordinator "
    "looks every 10 s); ids expire when a test says so (expire_transactional_id); an epoch that is used up at an end, "
    "two-phase commit (KIP-939), and a coordinator that loses what it knew are left out; the aborted list continues to "
    "the last stable offset (a real one ends at the index entry after what is given) and keeps what retention has "
    "thrown away",
    "replication: all replicas share the leader's log, so a replica only ever holds the beginning of it; one that "
    "comes back and is elected uncleanly has none of the records that the log lost meanwhile; no replica falls out of "
    "sync by a timer, and one that follows is never behind; DeleteRecords does not wait for replicas; a follower "
    "serves no Fetch (a real one does from version 11 on); brokers that end uncleanly stay eligible (KIP-966)",
    "producer ids: a broker's first block is there at once (a real one answers COORDINATOR_LOAD_IN_PROGRESS to the "
    "first InitProducerIds after its start) and outlives a restart",
    "fetch sessions: every answer has session 0, as from a broker whose session cache is full",
    "groups: only the classic protocol; static members are treated as dynamic ones; no initial rebalance delay; "
    "a consumer's subscription is not parsed (a real coordinator never completes a join with a damaged one); "
    "committed offsets do not expire",
    "storage: no segments: retention throws away batch by batch and compaction takes all but the last batch, both "
    "only when told to; compaction keeps deletions and markers for good; no tiers; a broker whose log directory failed "
    "continues with KAFKA_STORAGE_ERROR for all it has (a real one with one directory ends, with several it loses only "
    "that one); a broker that comes back knows its producers (a real one may have lost those whose records retention "
    "took: forget_producers)",
    "record validation: a refused record is not named (record_errors, error_message); "
    "message.timestamp.before.max.ms and after.max.ms are not applied",
    "SASL: on all brokers or on none; no bare tokens after SaslHandshake v0; no delegation tokens",
    "other security, quotas, throttling, authorized operations, client telemetry, racks, controllers as separate nodes",
    "APIs of other groups (consumer, share, streams), reassignment, ACLs, features, quorum: not advertised",
)
"""Differences between the fake and a real Kafka 4.4.0 that a test must not lean on."""
