"""Options of producer ids and of clients' retries."""

from kproxy.config.broker_options import BrokerOptions, ClusterOptions
from kproxy.config.client_options import SizeOptions
from kproxy.config.option_units import BYTES, DAY_MS, HOUR_MS, MIB, MS
from kproxy.config.options import option
from kproxy.config.values import AUTO, BOOLEAN, PATTERNS, Auto, automatic, choice, whole_number


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
        "For this time after a connection has ended, kproxy compares what the same producer sends with the "
        "batches whose responses it may not have received. Make it longer than clients retry (Kafka's "
        "delivery.timeout.ms). Higher: more memory, for each unconfirmed batch. Lower: later retries are written "
        "twice.",
    )
    clean_close_window_ms: int | Auto = option(
        AUTO,
        automatic(whole_number(0, DAY_MS, "ms")),
        "For balancers, meshes and relays that end TCP between clients and kproxy (docs/semantics.md): for this "
        "time after kproxy has accepted a record without a timestamp (message format 0, LogAppendTime), it "
        "compares records with it although its connection closed in good order after the response. auto: 0 for "
        "direct connections, 10000 for those with a PROXY protocol header (proxy.protocol.hosts). Make it longer "
        "than clients wait for a response and retry. Higher: an equal record within this time counts as a retry "
        "and is not written. Lower: a retry after this time is written twice. 0: nothing is compared.",
    )
    clean_close_window_hosts: tuple[str, ...] = option(
        (),
        PATTERNS,
        "The addresses (patterns, as kproxy sees them) to whose connections a number in clean.close.window.ms "
        "applies, such as a balancer's; others have 0. Connections with a PROXY protocol header are always "
        "included.",
        default_text="all connections",
    )
    clients_in_flight: int | Auto = option(
        AUTO,
        automatic(whole_number(1, 1_000_000, "requests")),
        "Produce requests that a client may send before it reads a response that its host has received, unless "
        "it was seen to send more. That many later requests prove that it received the response. auto: 5, the "
        "usual max.in.flight, for Java, sarama, franz-go, kafka-python, aiokafka and kafkajs by their software "
        "names (KIP-511), and for clients without a name that were only seen to wait for each response; 1000 for "
        "librdkafka and others. Set 1 if all clients wait for each response. Higher: batches are confirmed "
        "later, which takes up to 1 MiB of memory for a connection. Lower: retries of a client that sends more "
        "are written twice.",
    )
    clients_request_timeout_ms: int = option(
        60_000,
        MS,
        "The longest time that a client waits for a response. A connection that stays open for 1.5 times this "
        "time after the client's kernel has acknowledged a response proves that the client received it.",
    )
    clients_new_timestamps: tuple[str, ...] = option(
        ("sarama", "kafkajs", ""),
        PATTERNS,
        "Patterns of client.ids of clients that give a record a new timestamp when they send it again, unless "
        "their application sets timestamps: sarama, kafkajs and kafka-go, by their default client.ids (kafka-go: "
        '"", none). Add the client.ids that you gave such clients. Their retries are recognised without '
        "timestamps; so, right after a lost connection, an equal record counts as a retry.",
    )
    clients_connection_pools: tuple[str, ...] = option(
        ("?*(github.com/segmentio/kafka-go)", ""),
        PATTERNS,
        "Patterns of client.ids of clients that use several connections to one broker at the same time, and may "
        'retry over another one: kafka-go, by its default client.ids ("" is none). Add the client.ids that you '
        "gave such clients, otherwise some of their retries are written twice. Two connections of another client "
        "that are in use to one broker at the same time are two programs with one client.id: a record of one is "
        "never taken for a retry of the other's.",
    )
    idempotent_clients: tuple[str, ...] = option(
        ("*",),
        PATTERNS,
        "Patterns of client.ids of idempotent producers whose sequence numbers kproxy keeps valid: a broker's "
        "error about them reaches the client only where the log has lost acknowledged records. Requests and "
        "errors of other clients are relayed. It holds from a client's next InitProducerId on, and needs "
        "crash.recovery.enable and brokers from Kafka 2.8 on.",
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
        "clients move. All instances need it, with clocks that agree within a second, and crash.recovery.enable. "
        "Each producer connection then reads __kproxy_producer_state to its end once.",
    )
    fleet_patience_ms: int = option(
        2000,
        MS,
        "With fleet.retries.enable: how long kproxy waits until another instance has noticed that a client left "
        "it. After that kproxy fences the producer ids that the other instance has for this client, and a "
        "connection in use there ends.",
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
        "How kproxy recognises a producer that reconnects. address: by principal, client.id and IP address. "
        "client.id: without the address, for producers that return with another one (a rescheduled pod, a "
        "balancer without the PROXY protocol); each producer then needs its own client.id.",
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
        "How long an entry of __kproxy_producer_state counts after it was written; retention.ms of the topic "
        "when kproxy creates it. An instance writes what it uses again after about two thirds of this time. At "
        "least 7 times retry.window.ms and delivery.timeout.ms. Higher: an instance may be away, or unable to "
        "write to the topic, for longer (a seventh of this time at least) before its clients' retries can become "
        "duplicates; entries of instances that never return are kept for longer. Lower: the opposite, and more "
        "writes.",
    )
