"""Options of producer ids and of clients' retries."""

from kproxy.config.broker_options import BrokerOptions, ClusterOptions
from kproxy.config.client_options import SizeOptions
from kproxy.config.option_units import BYTES, DAY_MS, HOUR_MS, MIB, MS
from kproxy.config.options import option
from kproxy.config.values import BOOLEAN, PATTERNS, choice, whole_number


class RetryOptions(BrokerOptions, SizeOptions, ClusterOptions):
    """How kproxy recognises what a client repeats, and what it remembers for that."""

    idempotence_enable: bool = option(
        True,
        BOOLEAN,
        "Stamp the batches of producers that are not idempotent themselves with producer id, epoch and sequence "
        "number. Off: kproxy only translates versions.",
        group="Idempotence",
    )
    max_in_flight_per_partition: int = option(
        5,
        whole_number(1, 5, "batches"),
        "Stamped batches in flight for one producer and partition. A broker remembers the last 5, so it could not "
        "recognise more as duplicates.",
    )
    retry_window_ms: int = option(
        120_000,
        MS,
        "How long after the end of a connection kproxy compares what its client may not have received a response for "
        "with what the same producer sends. Make it longer than clients retry: Kafka's delivery.timeout.ms. A longer "
        "window needs memory for each unconfirmed batch.",
    )
    clean_close_window_ms: int = option(
        10_000,
        whole_number(0, DAY_MS, "ms"),
        "Like retry.window.ms, for a client that closed its connection in good order after all responses and whose "
        "records have no timestamps (message format 0). 0: nothing between clients and kproxy closes connections by "
        "itself, so such an end proves that the client received the responses.",
    )
    clients_in_flight: int = option(
        5,
        whole_number(1, 100, "requests"),
        "Produce requests that a client may send before it reads a response, unless it was seen to send more. That "
        "many later requests prove that it received the response. Most clients' default for max.in.flight is 5; set 1 "
        "if all clients wait for each response.",
    )
    clients_request_timeout_ms: int = option(
        60_000,
        MS,
        "How long a client waits for a response at most. A connection that stays open for 1.5 times this time after a "
        "response proves that the client received it.",
    )
    clients_new_timestamps: tuple[str, ...] = option(
        ("sarama", "kafkajs", ""),
        PATTERNS,
        "Patterns of client.ids of clients that give a record a new timestamp when they send it again, unless their "
        'application sets timestamps: sarama, kafkajs and kafka-go, by their default client.ids ("" is that of '
        "kafka-go: none). Add the client.ids that you gave such clients. Their retries are recognised without "
        "comparing timestamps; so, right after a lost connection, an equal record counts as a retry.",
    )
    crash_recovery_enable: bool = option(
        True,
        BOOLEAN,
        "Record each producer id in the topic __kproxy_producer_state before its first use, so that the next kproxy "
        "with this instance.id recognises the retries of what a killed kproxy had sent.",
    )
    fleet_retries_enable: bool = option(
        False,
        BOOLEAN,
        "Recognise retries of what a client sent through another instance of kproxy, for gateways between which "
        "clients move. All instances need it, with clocks that agree within a second, and crash.recovery.enable. Each "
        "producer connection then reads __kproxy_producer_state to its end once.",
    )
    fleet_patience_ms: int = option(
        2000,
        MS,
        "With fleet.retries.enable: how long kproxy waits until another instance has noticed that a client has left "
        "it. After that kproxy fences the producer ids that the other instance has for this client, and a connection "
        "that is in use there ends.",
    )
    recovery_max_bytes: int = option(
        16 * MIB,
        BYTES,
        "The most bytes that kproxy reads back from one partition's log to compare with retries.",
    )
    recovery_concurrency: int = option(
        4,
        whole_number(1, 1000, "requests"),
        "Concurrent reads from brokers' logs; further ones wait.",
    )
    identity_by: str = option(
        "address",
        choice("address", "client.id"),
        "How kproxy tells producers apart when one reconnects: address takes its principal, its client.id and its IP "
        "address; client.id leaves the address out, for producers that come back with another address (a pod that is "
        "rescheduled, a balancer without the PROXY protocol). Then each producer needs a client.id of its own.",
    )
    producer_state_log_replication_factor: int = option(
        3,
        whole_number(1, 1000, "replicas"),
        "Replicas of __kproxy_producer_state when kproxy creates it; fewer, with a warning, if the cluster has fewer "
        "brokers.",
    )
    producer_state_log_num_partitions: int = option(
        16, whole_number(1, 10_000, "partitions"), "Partitions of __kproxy_producer_state when kproxy creates it."
    )
    producer_state_log_min_isr: int = option(
        2,
        whole_number(1, 1000, "replicas"),
        "min.insync.replicas of __kproxy_producer_state when kproxy creates it; never more than its replicas.",
    )
    producer_state_log_retention_ms: int = option(
        7 * DAY_MS,
        whole_number(HOUR_MS, 365 * DAY_MS, "ms"),
        "How long an entry of __kproxy_producer_state counts after it was written; retention.ms of the topic when "
        "kproxy creates it. An instance writes what it uses again after about two thirds of this time; what an "
        "instance that never returns has left ends with it. Higher: an instance may be away, or unable to write to "
        "the topic, for longer (a seventh of this time at least) before retries of its clients can become duplicates; "
        "more is kept of instances that never return. Lower: the opposite, and more writes. At least 7 times "
        "retry.window.ms and delivery.timeout.ms.",
    )
