"""Options of transactions."""

from kproxy.config.option_units import DAY_MS, INT32_MAX, MIB, MS
from kproxy.config.options import Change, option
from kproxy.config.retry_options import RetryOptions
from kproxy.config.values import COMMIT_RULES, HOME_RULES, PATTERNS, PERMIT_RULES, choice, whole_number
from kproxy.proxy.applications import CommitRule
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.proxy.permits import PermitRule


class TransactionOptions(RetryOptions):
    """Which coordinator decides a transaction, and the log of those that kproxy decides."""

    transactions_home: tuple[HomeRule, ...] = option(
        (HomeRule("*", Home.AUTO),),
        HOME_RULES,
        "Which coordinator decides a producer's transactions: its broker, or kproxy in its own log, whose "
        "consumers must read through kproxy. By pattern of transactional ids; the first match counts. auto: the "
        "broker if it serves transactions, but kproxy for clients that know nothing of them. broker-fenced: the "
        "broker, asked by kproxy, so that each transaction has its own epoch (KIP-890). Let the broker decide "
        "for Kafka Streams, Connect and Flink: kproxy refuses compacted topics.",
        group="Transactions",
    )
    transactional_id_clients: tuple[PermitRule, ...] = option(
        (),
        PERMIT_RULES,
        "Which clients may use which transactional ids, by patterns of both. An id that a rule names is for "
        "clients whose client.id, or with User:... whose principal, matches one of its rules; others receive "
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED. Other ids are for all.",
        change=Change.NEW_CONNECTIONS,
    )
    transaction_admin_hosts: tuple[str, ...] = option(
        ("localhost",),
        PATTERNS,
        "Hosts, by patterns of their addresses, that may abort any of kproxy's open transactions with "
        "kafka-transactions.sh. localhost means every loopback address.",
        change=Change.NEW_CONNECTIONS,
    )
    on_offset_commit: tuple[CommitRule, ...] = option(
        (),
        COMMIT_RULES,
        "Applications that know nothing of transactions: all that a producer with a matching client.id writes "
        "between two OffsetCommits is one transaction with these offsets. The consumer has the same client.id, "
        "or the given group or client.id: etl-*,loader=group:loaders,out=client:in. Each application needs its "
        "own names.",
    )
    on_offset_commit_timeout_ms: int = option(
        60_000,
        MS,
        "The transaction.timeout.ms of these transactions. Make it longer than the time between two commits of an "
        "application.",
    )
    per_request: tuple[str, ...] = option(
        (),
        PATTERNS,
        "Patterns of client.ids for which each Produce request is a transaction: it becomes visible in all its "
        "partitions or in none.",
    )
    transactional_id_timeout_ms: int = option(
        7 * DAY_MS,
        whole_number(1, 365 * DAY_MS, "ms"),
        "kproxy forgets a transactional id without a transaction for this time. KIP-98's name; Kafka's is "
        "transactional.id.expiration.ms.",
    )
    transactional_id_limit: int = option(
        10_000,
        whole_number(1, 1_000_000, "ids"),
        "Transactional ids that one principal may have at this kproxy; clients that do not log in are one "
        "principal. InitProducerId for another one receives POLICY_VIOLATION until ids have expired "
        "(transactional.id.timeout.ms), and the first one is logged. Existing ids are always served; where the "
        "broker decides (transactions.home) there is no limit. An id counts once more for each 256 characters. "
        "Higher: clients can take more memory, 5 KB for each id. Lower: applications that need more ids stop.",
    )
    transaction_max_timeout_ms: int = option(
        900_000,
        MS,
        "The longest transaction.timeout.ms that a producer may ask for; more is refused, because read_committed "
        "consumers wait at an open transaction. Kafka's transaction.max.timeout.ms.",
    )
    unknown_producer_ids: str = option(
        "reject",
        choice("reject", "wait"),
        "What happens to data of kproxy's transactions that the transaction log has lost. reject: readers wait "
        "for transaction.max.timeout.ms, then skip the data. wait: they wait until you run kproxy txn reject.",
    )
    transaction_state_log_replication_factor: int = option(
        3,
        whole_number(1, 1000, "replicas"),
        "Replicas of __kproxy_transaction_state when kproxy creates it; fewer, with a warning, if the cluster has "
        "fewer brokers.",
    )
    transaction_state_log_num_partitions: int = option(
        50,
        whole_number(1, 10_000, "partitions"),
        "Partitions of __kproxy_transaction_state when kproxy creates it. Never change the topic's number later: it "
        "determines the partition of each transactional id.",
    )
    transaction_state_log_min_isr: int = option(
        2,
        whole_number(1, 1000, "replicas"),
        "min.insync.replicas of __kproxy_transaction_state when kproxy creates it; never more than its replicas.",
    )
    transaction_state_log_segment_bytes: int = option(
        100 * MIB,
        whole_number(MIB, INT32_MAX, "bytes"),
        "segment.bytes of __kproxy_transaction_state when kproxy creates it.",
    )
