"""``Config``: every option with its type, default, unit and reason. This is the one table; all else is made from it."""

# ruff: noqa: RUF009 - option() makes a dataclasses.field, it is not a shared mutable default.

import socket
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from kproxy.config.log_levels import LEVEL, LOG_LEVEL_RULES
from kproxy.config.login_values import KEY_URL, MECHANISM_LIST, WORD_LIST
from kproxy.config.options import Change, describe, option
from kproxy.config.otel_values import OTLP_ENDPOINT, RATIO
from kproxy.config.secrets import SECRET, SecretLocation
from kproxy.config.values import (
    ADDRESSES,
    BOOLEAN,
    COMMIT_RULES,
    DELIVER_RULES,
    EXTENSIONS,
    HOME_RULES,
    HOST_PATTERN,
    ISOLATION_LEVEL,
    ISOLATION_RULES,
    LISTEN_ADDRESS,
    MAPPING_RULES,
    OPTIONAL_LISTEN_ADDRESS,
    OPTIONAL_PATH,
    OPTIONAL_TEXT,
    PATTERNS,
    PERMIT_RULES,
    PORTS,
    PRINCIPALS,
    REACHABLE_ADDRESS,
    READ_COMMITTED,
    TOKEN_URL,
    DeliverRule,
    IsolationRule,
    LogLevelRule,
    PrincipalList,
    choice,
    pattern,
    whole_number,
)
from kproxy.proxy.applications import CommitRule
from kproxy.proxy.coordinator_rules import Home, HomeRule, home_of
from kproxy.proxy.permits import PermitRule
from kproxy.proxy.principals import DEFAULT_MAPPING, MappingRule
from kproxy.proxy.routing import Address

_MIB = 1 << 20
_INT32_MAX = (1 << 31) - 1
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_BYTES = whole_number(1024, _INT32_MAX, "bytes")
_MEMORY = whole_number(65_536, 1 << 40, "bytes")
_MS = whole_number(1, _DAY_MS, "ms")
_PORTS_AFTER_LISTEN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The effective configuration of one kproxy process. Sizes are in bytes, times in milliseconds."""

    bootstrap_servers: tuple[Address, ...] = field(
        metadata=describe(
            ADDRESSES,
            "Brokers to ask for the cluster's members; two or three are enough, the others are found through them. "
            "An IPv6 address stands in brackets.",
            group="Addresses",
        )
    )
    listen: Address = option(
        Address("127.0.0.1", 19092),
        LISTEN_ADDRESS,
        "Where clients bootstrap. Loopback, because a sidecar serves its own host and no one else; "
        "not 9092, so that it can stand next to a broker. 0.0.0.0:9092 makes it a gateway.",
    )
    advertised_address: Address | None = option(
        None,
        REACHABLE_ADDRESS,
        "What clients are told to connect to, where that differs from the bound address (NAT, containers).",
        default_text="the listen address; for 0.0.0.0 or [::] the IP address that the client connected to",
    )
    broker_ports: range | None = option(
        None,
        PORTS,
        "Every broker gets one port of this range, so that a client which connects to a broker's port is relayed "
        "to that broker. At least as many ports as brokers.",
        default_text="the 100 ports after the listen port; any free ports if that is 0",
    )
    advertised_broker_ports: range | None = option(
        None,
        PORTS,
        "The ports clients are told in place of broker.ports, one for one, where ports are mapped on the way.",
        default_text="broker.ports",
    )
    http: Address | None = option(
        Address("127.0.0.1", 19644),
        OPTIONAL_LISTEN_ADDRESS,
        "Metrics, health, readiness and the status page (docs/status.md). On an address beyond loopback the page shows "
        "clients to other hosts only with the token of control.token.file. off or empty: no HTTP at all.",
    )
    instance_id: str = option(
        socket.gethostname(),
        pattern("[A-Za-z0-9._-]{1,200}", "1 to 200 of letters, digits, dot, underscore and hyphen"),
        "Names this kproxy. No two that run at a time may share it, and a restarted one must have its old one.",
        default_text="the host name",
    )
    broker_host_pattern: str | None = option(
        None,
        HOST_PATTERN,
        "One port for all brokers: clients are told this name for each, {id} being the broker's id, at the port of "
        "listen; TLS says which they meant (SNI). Every name must lead to kproxy, and stand in its certificate. "
        "Kafka behind one port of a load balancer.",
        default_text="each broker has a port of its own",
    )
    ssl_certificate_location: Path | None = option(
        None,
        OPTIONAL_PATH,
        "PEM file of the certificate, with those between it and its root, that clients are shown; if given, clients "
        "must speak TLS (1.2 or later). Files of TLS are read again when they change; connections go on.",
        group="TLS to clients",
    )
    ssl_key_location: Path | None = option(
        None, OPTIONAL_PATH, "PEM file of its private key, where that is not in the same file."
    )
    ssl_key_password_location: Path | None = option(
        None, OPTIONAL_PATH, "File whose first line unlocks the key, if it is locked."
    )
    ssl_client_auth: str = option(
        "none",
        choice("none", "requested", "required"),
        "Whether clients show a certificate (mTLS). requested: they need not, but one that is shown must be good. "
        "Kafka's ssl.client.auth.",
    )
    ssl_ca_location: Path | None = option(
        None, OPTIONAL_PATH, "PEM file of those who sign the clients' certificates; needed by ssl.client.auth."
    )
    ssl_principal_mapping_rules: tuple[MappingRule, ...] = option(
        DEFAULT_MAPPING,
        MAPPING_RULES,
        "What a client with a certificate is called: RULE:PATTERN/REPLACEMENT/CASE and DEFAULT (the whole subject), "
        "joined by commas, CASE being L, U or nothing; the first whose pattern matches the whole subject counts, a "
        "subject that none fits is refused. Kafka's ssl.principal.mapping.rules.",
    )
    sasl_enabled_mechanisms: tuple[str, ...] = option(
        (),
        MECHANISM_LIST,
        "How clients log in at kproxy, which then knows who they are. Off, SASL goes through to the broker. Kafka's "
        "sasl.enabled.mechanisms.",
        group="SASL of clients",
        default_text="off",
    )
    sasl_credentials_location: Path | None = option(
        None,
        OPTIONAL_PATH,
        "File of the users of PLAIN and SCRAM, made with kproxy credentials: it holds no passwords, only what proves "
        "them. Read again when it changes.",
    )
    connections_max_reauth_ms: int = option(
        0,
        whole_number(0, _DAY_MS, "ms"),
        "After so long a client must have logged in again, or its connection ends; 0: never, but when its token "
        "expires. Kafka's connections.max.reauth.ms.",
    )
    connection_failed_authentication_delay_ms: int = option(
        100,
        whole_number(0, _HOUR_MS, "ms"),
        "Who is refused hears of it after so long: guessing takes time. Kafka's "
        "connection.failed.authentication.delay.ms.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = option(
        None,
        KEY_URL,
        "Where the public keys of those who issue tokens are, as a JSON Web Key Set. Needs kproxy[oauth]. Kafka's "
        "sasl.oauthbearer.jwks.endpoint.url.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = option(
        3_600_000,
        _MS,
        "The keys are asked for again after so long, and at once for a token with a key that is not among them, every "
        "10 s at most. Kafka's sasl.oauthbearer.jwks.endpoint.refresh.ms.",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = option(
        (),
        WORD_LIST,
        "A token must be for one of these (aud). Kafka's sasl.oauthbearer.expected.audience.",
        default_text="any",
    )
    sasl_oauthbearer_expected_issuer: str = option(
        "",
        pattern(r"\S{0,1000}", "the name or URL of an issuer, without spaces"),
        "A token must be issued by this one (iss). Kafka's sasl.oauthbearer.expected.issuer.",
        default_text="any",
    )
    sasl_oauthbearer_clock_skew_seconds: int = option(
        30,
        whole_number(0, 3600, "s"),
        "So far the issuer's clock may differ. Kafka's sasl.oauthbearer.clock.skew.seconds.",
    )
    sasl_oauthbearer_sub_claim_name: str = option(
        "sub",
        pattern("[!-~]{1,200}", "the name of a claim"),
        "The claim that is the user's name. Kafka's sasl.oauthbearer.sub.claim.name.",
    )
    sasl_oauthbearer_scope_claim_name: str = option(
        "scope",
        pattern("[!-~]{1,200}", "the name of a claim"),
        "The claim with what a token grants. Kafka's sasl.oauthbearer.scope.claim.name.",
    )
    sasl_oauthbearer_expected_scope: tuple[str, ...] = option(
        (), WORD_LIST, "A token must grant all of these.", default_text="none"
    )
    acl_file: Path | None = option(
        None,
        OPTIONAL_PATH,
        "YAML file of rules: who may do what with which topics, groups, transactional ids and the cluster. If given, "
        "all that no rule allows is refused. Read again when it changes; kproxy acl checks and explains it. See "
        "docs/security.md.",
        default_text="off: all is allowed",
        group="Authorization and quotas",
    )
    super_users: PrincipalList = option(
        PrincipalList(),
        PRINCIPALS,
        "Principals that need no rule in acl.file. Kafka's super.users.",
    )
    quotas_file: Path | None = option(
        None,
        OPTIONAL_PATH,
        "YAML file of limits by principal and client.id: bytes and requests a second, connections. Read again when it "
        "changes. See docs/security.md.",
        default_text="off: nothing is limited",
    )
    quota_throttle_max_ms: int = option(
        5_000,
        whole_number(1, 60_000, "ms"),
        "Who exceeds a limit of quotas.file is not heard for so long at most: well under the time after which clients "
        "give up a request.",
    )
    upstream_security_protocol: str = option(
        "plaintext",
        choice("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
        "How kproxy speaks to brokers. Kafka's security.protocol.",
        group="TLS to brokers",
    )
    upstream_ssl_ca_location: Path | None = option(
        None,
        OPTIONAL_PATH,
        "PEM file of those who sign the brokers' certificates.",
        default_text="the system's authorities",
    )
    upstream_ssl_endpoint_identification_algorithm: str = option(
        "https",
        choice("https", "none"),
        "https: a broker's certificate must name the host that kproxy connects to. Kafka's "
        "ssl.endpoint.identification.algorithm.",
    )
    upstream_ssl_certificate_location: Path | None = option(
        None, OPTIONAL_PATH, "PEM file of the certificate that kproxy shows to brokers which ask for one (mTLS)."
    )
    upstream_ssl_key_location: Path | None = option(
        None, OPTIONAL_PATH, "PEM file of its private key, where that is not in the same file."
    )
    upstream_ssl_key_password_location: Path | None = option(
        None, OPTIONAL_PATH, "File whose first line unlocks the key, if it is locked."
    )
    upstream_sasl_mechanism: str = option(
        "SCRAM-SHA-512",
        choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"),
        "How kproxy logs in at brokers, where upstream.security.protocol is sasl_plaintext or sasl_ssl. Kafka's "
        "sasl.mechanism. AWS_MSK_IAM signs tokens with the AWS credentials of the environment and sends them by "
        "OAUTHBEARER.",
        group="SASL to brokers",
    )
    upstream_sasl_username: str | None = option(
        None, OPTIONAL_TEXT, "The name by which kproxy logs in with PLAIN or SCRAM."
    )
    upstream_sasl_password_location: SecretLocation | None = option(
        None,
        SECRET,
        "Where its password is: the first line of a file, or env:VARIABLE. Read again at each login, so that it can "
        "be changed while kproxy runs.",
    )
    upstream_sasl_oauthbearer_token_location: SecretLocation | None = option(
        None, SECRET, "Where the token for OAUTHBEARER is, if something else keeps it fresh; read at each login."
    )
    upstream_sasl_oauthbearer_token_endpoint_url: str | None = option(
        None,
        TOKEN_URL,
        "Where tokens for OAUTHBEARER are asked for, with client credentials. Kafka's "
        "sasl.oauthbearer.token.endpoint.url.",
    )
    upstream_sasl_oauthbearer_client_id: str | None = option(
        None, OPTIONAL_TEXT, "The name by which the endpoint knows kproxy."
    )
    upstream_sasl_oauthbearer_client_secret_location: SecretLocation | None = option(
        None, SECRET, "Where its secret is; read each time a token is asked for."
    )
    upstream_sasl_oauthbearer_scope: str | None = option(
        None, OPTIONAL_TEXT, "The scope to ask for.", default_text="the endpoint's own"
    )
    upstream_sasl_oauthbearer_extensions: tuple[str, ...] = option(
        (),
        EXTENSIONS,
        "NAME=VALUE pairs to send with the token, as some providers ask for (KIP-342): logicalCluster=lkc-1.",
    )
    upstream_sasl_aws_region: str | None = option(
        None, OPTIONAL_TEXT, "For AWS_MSK_IAM: the region of the cluster; needs kproxy[msk]."
    )
    upstream_sasl_identity: str = option(
        "kproxy",
        choice("kproxy", "client", "mapped"),
        "As whom clients' requests come to a broker that wants SASL. kproxy: all as kproxy itself. client: each "
        "connection as its client, whose own SASL goes through to the broker. mapped: as "
        "upstream.sasl.identities.file says.",
    )
    upstream_sasl_identities_file: Path | None = option(
        None,
        OPTIONAL_PATH,
        "For upstream.sasl.identity = mapped: which client is whom at the brokers, by principal. Read again when it "
        "changes; see docs/security.md.",
    )
    max_frame_bytes: int = option(
        104_857_600,
        _BYTES,
        "Longest request from a client; a longer one ends its connection. Kafka's socket.request.max.bytes. "
        "If not given, never more than buffer.memory.",
        group="Memory and sizes",
        change=Change.NEW_CONNECTIONS,
    )
    request_max_bytes: int = option(
        4 * _MIB,
        _BYTES,
        "Longest request from a client other than Produce; a longer one ends its connection. kproxy decodes these as a "
        "whole. Raise it for requests with very many names, such as JoinGroup and SyncGroup of huge groups. "
        "If not given, never more than max.frame.bytes.",
        change=Change.NEW_CONNECTIONS,
    )
    request_max_elements: int = option(
        20_000,
        whole_number(1_000, _INT32_MAX, "elements"),
        "Most array elements (topics, partitions, groups, ...) in one request other than Produce; one with more ends "
        "its connection. 20,000 take about 100 ms where there are rules (acl.file), and no other client is served "
        "meanwhile; raise it only "
        "for clients that ask for more partitions at once. Lists of plain numbers do not count.",
        change=Change.NEW_CONNECTIONS,
    )
    connection_buffer_bytes: int = option(
        8 * _MIB,
        _MEMORY,
        "Requests held for one connection before kproxy stops reading from it. Holds 5 in flight of a common "
        "1 MiB request; a single longer request still passes, alone. "
        "If not given, never more than buffer.memory.",
    )
    buffer_memory: int = option(
        128 * _MIB,
        _MEMORY,
        "Requests and answers held in the whole process before kproxy stops reading from clients. A slow broker "
        "slows its clients and never grows the heap. Holds one request of max.frame.bytes.",
    )
    max_connections: int = option(
        10_000,
        whole_number(1, 1_000_000, "connections"),
        "Clients connected at a time; more are closed at once and counted, so that a reconnect storm cannot "
        "take all file descriptors.",
        change=Change.RELOAD,
    )
    max_connections_per_ip: int = option(
        1_000_000,
        whole_number(1, 1_000_000, "connections"),
        "As max.connections, for each address that clients come from (IPv6: each /64 network): then one host that "
        "leaks connections, or means ill, leaves room to the others. Not limited by default, since a sidecar's "
        "clients all have one address. "
        "Kafka's max.connections.per.ip.",
        change=Change.RELOAD,
    )
    decompression_max_bytes: int = option(
        64 * _MIB,
        _BYTES,
        "Longest content of the compressed batches of one request that must be converted; guards against a few bytes "
        "that unpack to gigabytes. Batches that are not converted are never unpacked.",
    )
    max_message_bytes: int = option(
        1_048_588,
        _BYTES,
        "Converted batches are split so that none is longer. Kafka's message.max.bytes; set it to the smallest "
        "of your topics. If not given, never more than max.frame.bytes.",
        change=Change.NEW_CONNECTIONS,
    )
    fetch_max_bytes: int = option(
        16 * _MIB,
        _BYTES,
        "Longest Fetch response that kproxy looks through or converts, and so holds in memory: kproxy asks the "
        "broker for no more at once. Old clients ask for at most 1 MiB a partition by default.",
        change=Change.NEW_CONNECTIONS,
    )
    frame_timeout_ms: int = option(
        30_000,
        _MS,
        "A request that has begun must be complete within this time, else its connection is closed: half a "
        "request must not hold memory for ever.",
        group="Times",
        change=Change.RELOAD,
    )
    ssl_handshake_timeout_ms: int = option(
        10_000,
        _MS,
        "A client must have finished its TLS handshake within this time after it connected, else it is disconnected. "
        "Each unfinished one holds about 20 KB. Raise it for clients behind slow networks.",
        change=Change.RELOAD,
    )
    connections_max_idle_ms: int = option(
        600_000,
        _MS,
        "A client that sends nothing for so long is disconnected. Kafka's connections.max.idle.ms.",
        change=Change.RELOAD,
    )
    upstream_connect_timeout_ms: int = option(
        10_000,
        _MS,
        "Give up an attempt to connect to a broker, and try the next. Kafka's socket.connection.setup.timeout.ms.",
    )
    upstream_request_timeout_ms: int = option(
        30_000,
        _MS,
        "A broker that has not answered a request by then counts as lost; a request that carries its own "
        "time-out (Produce, Fetch, JoinGroup) gets that on top. Kafka's request.timeout.ms.",
    )
    retry_backoff_ms: int = option(100, _MS, "First pause before a retry towards a broker; doubles with every failure.")
    retry_backoff_max_ms: int = option(
        1_000, _MS, "Longest pause between retries; short, because clients wait meanwhile."
    )
    metadata_max_age_ms: int = option(
        30_000,
        _MS,
        "Ask for the cluster's members at least this often, so that a new broker has its port before clients "
        "need it. Errors refresh at once.",
    )
    delivery_timeout_ms: int = option(
        120_000,
        _MS,
        "How long kproxy goes on to send a batch whose fate is open after its client has gone. "
        "Kafka's delivery.timeout.ms.",
    )
    shutdown_grace_ms: int = option(
        10_000,
        whole_number(0, _HOUR_MS, "ms"),
        "After SIGTERM: time for requests in flight to be answered, and for open transactions to be decided. Well "
        "under the 30 s that Kubernetes allows.",
        change=Change.RELOAD,
    )
    shutdown_delay_ms: int = option(
        0,
        whole_number(0, _HOUR_MS, "ms"),
        "After SIGTERM: so long kproxy still takes clients, but says that it is not ready, so that load balancers "
        "notice first. Comes before shutdown.grace.ms.",
        change=Change.RELOAD,
    )
    idempotence_enable: bool = option(
        True,
        BOOLEAN,
        "Stamp the batches of producers that are not idempotent themselves with producer id, epoch and sequence. "
        "Off, kproxy only bridges versions.",
        group="Idempotence",
    )
    max_in_flight_per_partition: int = option(
        5,
        whole_number(1, 5, "batches"),
        "Stamped batches on their way for one producer and partition. A broker remembers the last 5, "
        "so more could not be recognised as duplicates.",
    )
    retry_window_ms: int = option(
        120_000,
        _MS,
        "How long after the end of a connection what its client may not have had an answer for is compared with what "
        "the same producer sends. Longer than a client goes on trying: Kafka's delivery.timeout.ms.",
    )
    clean_close_window_ms: int = option(
        10_000,
        whole_number(0, _DAY_MS, "ms"),
        "As retry.window.ms, where the client closed its connection in good order behind all answers and its records "
        "bear no timestamps (message format 0). 0 where nothing stands between the clients and kproxy that ends "
        "connections by itself: then such an end proves that the answers were had.",
    )
    clients_in_flight: int = option(
        5,
        whole_number(1, 100, "requests"),
        "Produce requests that a client may have sent before it reads an answer, if it was not seen to send more. So "
        "many later ones prove that an answer was had. Most clients' default for max.in.flight is 5; 1 where all "
        "clients wait for each answer.",
    )
    clients_request_timeout_ms: int = option(
        60_000,
        _MS,
        "How long a client waits for an answer at most. A connection that lasts for so long behind an answer proves "
        "that it was had.",
    )
    crash_recovery_enable: bool = option(
        True,
        BOOLEAN,
        "Note each producer id in the topic __kproxy_producer_state before its first use, so that retries of what a "
        "killed kproxy had sent are recognised by the next one with its instance.id.",
    )
    recovery_max_bytes: int = option(
        16 * _MIB,
        _BYTES,
        "Read back from one partition's log at most, to compare with retries.",
    )
    recovery_concurrency: int = option(
        4,
        whole_number(1, 1000, "requests"),
        "Reads from brokers' logs at a time; others wait.",
    )
    producer_state_log_replication_factor: int = option(
        3,
        whole_number(1, 1000, "replicas"),
        "Of __kproxy_producer_state, when kproxy makes it. Fewer, with a warning, where the cluster has fewer brokers.",
    )
    producer_state_log_num_partitions: int = option(
        16, whole_number(1, 10_000, "partitions"), "Of __kproxy_producer_state, when kproxy makes it."
    )
    producer_state_log_min_isr: int = option(
        2,
        whole_number(1, 1000, "replicas"),
        "Of __kproxy_producer_state, when kproxy makes it; never more than its replicas.",
    )
    transactions_home: tuple[HomeRule, ...] = option(
        (HomeRule("*", Home.AUTO),),
        HOME_RULES,
        "Who decides the transactions of a producer: its broker, or kproxy on a log of its own, whose consumers have "
        "to read through kproxy. By pattern of transactional ids; the first that matches counts. auto: the broker, "
        "where it serves transactions, but kproxy for clients that know nothing of them. broker-fenced: the broker, "
        "asked by kproxy, so that each transaction has an epoch of its own (KIP-890). Kafka Streams, Connect "
        "and Flink belong at the broker: kproxy refuses compacted topics.",
        group="Transactions",
    )
    transactional_id_clients: tuple[PermitRule, ...] = option(
        (),
        PERMIT_RULES,
        "Which clients may use which transactional ids, by patterns of both: an id that a rule names is for clients "
        "whose client.id fits one of its rules, or whose principal does, where the rule says User:...; others get "
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED. An id that no rule names is for all.",
        change=Change.NEW_CONNECTIONS,
    )
    transaction_admin_hosts: tuple[str, ...] = option(
        ("localhost",),
        PATTERNS,
        "From which hosts, by patterns of their addresses, any of kproxy's open transactions may be aborted with "
        "kafka-transactions.sh. localhost is every loopback address.",
        change=Change.NEW_CONNECTIONS,
    )
    on_offset_commit: tuple[CommitRule, ...] = option(
        (),
        COMMIT_RULES,
        "Applications that know nothing of transactions: all that a producer whose client.id fits writes between two "
        "OffsetCommits is one transaction with these offsets. The consumer has the same client.id, or the group or "
        "client.id that is given: etl-*,loader=group:loaders,out=client:in. Each application needs names of its own.",
    )
    on_offset_commit_timeout_ms: int = option(
        60_000,
        _MS,
        "The transaction.timeout.ms of these transactions: longer than an application takes between commits.",
    )
    per_request: tuple[str, ...] = option(
        (),
        PATTERNS,
        "Patterns of client.ids whose Produce requests are transactions, each of its own: seen in all its "
        "partitions, or "
        "in none.",
    )
    transactional_id_timeout_ms: int = option(
        7 * _DAY_MS,
        whole_number(1, 365 * _DAY_MS, "ms"),
        "A transactional id without a transaction for so long is forgotten. KIP-98's name; Kafka has it as "
        "transactional.id.expiration.ms.",
    )
    transaction_max_timeout_ms: int = option(
        900_000,
        _MS,
        "The longest transaction.timeout.ms that a producer may ask for; more is refused, because what comes behind an "
        "open transaction waits for it. Kafka's transaction.max.timeout.ms.",
    )
    unknown_producer_ids: str = option(
        "reject",
        choice("reject", "wait"),
        "What becomes of data of kproxy's transactions that the transaction log does not know, because it was lost: "
        "readers wait for transaction.max.timeout.ms, and then pass over them (reject); or they wait until "
        "kproxy txn reject is called (wait).",
    )
    transaction_state_log_replication_factor: int = option(
        3,
        whole_number(1, 1000, "replicas"),
        "Of __kproxy_transaction_state, when kproxy makes it. Fewer, with a warning, where the cluster has fewer "
        "brokers.",
    )
    transaction_state_log_num_partitions: int = option(
        50,
        whole_number(1, 10_000, "partitions"),
        "Of __kproxy_transaction_state, when kproxy makes it. Never change those of the topic later: each "
        "transactional id has its partition by their number.",
    )
    transaction_state_log_min_isr: int = option(
        2,
        whole_number(1, 1000, "replicas"),
        "Of __kproxy_transaction_state, when kproxy makes it; never more than its replicas.",
    )
    transaction_state_log_segment_bytes: int = option(
        100 * _MIB,
        whole_number(_MIB, _INT32_MAX, "bytes"),
        "Of __kproxy_transaction_state, when kproxy makes it.",
    )
    deliver_codecs: tuple[DeliverRule, ...] = option(
        (DeliverRule("kafka-node-client*", ((3, 1),)), DeliverRule("no-kafka-client*", ((2, 1), (3, 1)))),
        DELIVER_RULES,
        "Re-encode for consumers that cannot read a codec; the first client.id pattern that matches counts. The "
        "default helps two Node.js clients which hand on compressed bytes as data, or die. zstd always becomes "
        "gzip below Fetch v10, which cannot say zstd.",
        group="Old clients",
        change=Change.NEW_CONNECTIONS,
    )
    legacy_isolation_level: str = option(
        READ_COMMITTED,
        ISOLATION_LEVEL,
        "What consumers read that can't say so (Fetch v0-v3, ListOffsets v0-v1). read_committed: no records of "
        "transactions that were aborted, and none that are not decided yet.",
        change=Change.NEW_CONNECTIONS,
    )
    isolation_level_overrides: tuple[IsolationRule, ...] = option(
        (),
        ISOLATION_RULES,
        "What consumers read whatever they ask for; the first client.id pattern that matches counts. For clients with "
        "no isolation.level, or whose read_committed delivers aborted records (kafka-go, kafka-python before 3).",
        change=Change.NEW_CONNECTIONS,
    )
    legacy_clients_max: int = option(
        200,
        whole_number(0, 100_000, "clients"),
        "Clients that kproxy_legacy_requests_total tells apart; the others are counted as one, so that random "
        "client ids cannot flood the metrics.",
    )
    control_socket: Path | None = option(
        None,
        OPTIONAL_PATH,
        "Unix socket of the control API (begin, commit, abort, prepare; see docs/transactions.md), for this user only: "
        "mode 0600. Off, because it changes state; /run/kproxy/control.sock is where kproxy txn looks for it.",
        group="Control",
    )
    control_http: Address | None = option(
        None,
        OPTIONAL_LISTEN_ADDRESS,
        "The control API for those who can't use the socket. A loopback address only, since the token travels in plain "
        "text; needs control.token.file.",
    )
    control_token_file: Path | None = option(
        None,
        OPTIONAL_PATH,
        "Holds the token that every request to control.http must bear, and every abort on the status page: 16 to 1024 "
        "printable characters. Read at the start.",
    )
    handover_socket: Path | None = option(
        None,
        OPTIONAL_PATH,
        "Unix socket at which kproxy run --replace, of the same user, takes over the ports of this process, which then "
        "ends; mode 0600. No connection is refused meanwhile.",
    )
    log_level: str = option(
        "info",
        LEVEL,
        "Least weight of what is logged; info is quiet. kproxy log-level sets it while kproxy runs.",
        group="To watch",
        change=Change.RELOAD,
    )
    log_level_overrides: tuple[LogLevelRule, ...] = option(
        (),
        LOG_LEVEL_RULES,
        "Other levels for parts of kproxy, by the subsystem that each line names: server=debug,tls=error.",
        change=Change.RELOAD,
    )
    log_format: str = option(
        "auto",
        choice("auto", "console", "json"),
        "auto: console on a terminal, else one JSON object a line.",
        change=Change.RELOAD,
    )
    otel_exporter_otlp_endpoint: str | None = option(
        None,
        OTLP_ENDPOINT,
        "Where traces go: the address of an OTLP collector (HTTP), to which /v1/traces is added. Needs the extra otel. "
        "Headers and certificates are given in OpenTelemetry's own variables, such as OTEL_EXPORTER_OTLP_HEADERS.",
    )
    otel_traces_sampler_arg: float = option(
        0.01,
        RATIO,
        "Of requests and transactions whose records bear no W3C context, so many are traced; where they bear one, "
        "that says it. OpenTelemetry's OTEL_TRACES_SAMPLER_ARG of parentbased_traceidratio.",
    )
    otel_service_name: str = option(
        "kproxy", pattern("[ -~]{1,200}", "1 to 200 printable ASCII characters"), "What traces call this service."
    )
    otel_bsp_schedule_delay_ms: int = option(
        5_000, _MS, "Spans are sent at least so often. OpenTelemetry's OTEL_BSP_SCHEDULE_DELAY."
    )
    otel_bsp_max_queue_size: int = option(
        2_048,
        whole_number(1, 1_000_000, "spans"),
        "Finished spans that wait to be sent; more are dropped and counted. OTEL_BSP_MAX_QUEUE_SIZE.",
    )
    otel_bsp_max_export_batch_size: int = option(
        512,
        whole_number(1, 1_000_000, "spans"),
        "Spans sent at a time; so many are sent without waiting. OTEL_BSP_MAX_EXPORT_BATCH_SIZE.",
    )

    @property
    def broker_port_range(self) -> range:
        """The ports to listen on for brokers; empty if any free port will do (listen port 0)."""
        if self.broker_ports is not None:
            return self.broker_ports
        first = self.listen.port + 1
        return range(first, min(first + _PORTS_AFTER_LISTEN, 65536)) if self.listen.port else range(0)

    @property
    def logs_in(self) -> bool:
        """Whether kproxy logs in at brokers by SASL."""
        return self.upstream_security_protocol.startswith("sasl")

    @property
    def clients_log_in(self) -> bool:
        """Whether each client logs in at its broker by itself, through kproxy."""
        return self.logs_in and self.upstream_sasl_identity == "client"

    def transcode(self, client_id: str | None) -> dict[int, int]:
        """Codec code as stored -> code to deliver, from the first rule of ``deliver.codecs`` that fits the client."""
        for rule in self.deliver_codecs:
            if fnmatchcase(client_id or "", rule.client_id):
                return dict(rule.codecs)
        return {}

    def committed_for(self, client_id: str) -> bool | None:
        """Whether a client reads committed data only, by ``isolation.level.overrides``; None: as it asks."""
        for rule in self.isolation_level_overrides:
            if fnmatchcase(client_id, rule.client_id):
                return rule.level == READ_COMMITTED
        return None

    def transactions_home_of(self, transactional_id: str) -> Home:
        """Who decides a transactional id's transactions, by the first rule of ``transactions.home`` that fits it."""
        return home_of(self.transactions_home, transactional_id)
