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
from kproxy.proxy.coordinator_rules import Home, HomeRule
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
            "Brokers to ask for the members of the cluster. Two or three are enough; kproxy finds the others through "
            "them. Write an IPv6 address in brackets.",
            group="Addresses",
        )
    )
    listen: Address = option(
        Address("127.0.0.1", 19092),
        LISTEN_ADDRESS,
        "The address at which clients bootstrap. The default is loopback, because a sidecar serves its own host only, "
        "and not port 9092, so that a broker can run on the same host. 0.0.0.0:9092 makes it a gateway.",
    )
    advertised_address: Address | None = option(
        None,
        REACHABLE_ADDRESS,
        "The address that clients receive, if it differs from the bound address (NAT, containers).",
        default_text="the listen address; for 0.0.0.0 or [::] the IP address that the client connected to",
    )
    broker_ports: range | None = option(
        None,
        PORTS,
        "The range from which every broker gets one port: a client that connects to a broker's port is relayed to "
        "that broker. It needs at least as many ports as there are brokers.",
        default_text="the 100 ports after the listen port; any free ports if that is 0",
    )
    advertised_broker_ports: range | None = option(
        None,
        PORTS,
        "The ports that clients receive in place of broker.ports, one for one, if ports are mapped between them and "
        "kproxy.",
        default_text="broker.ports",
    )
    http: Address | None = option(
        Address("127.0.0.1", 19644),
        OPTIONAL_LISTEN_ADDRESS,
        "The address of metrics, health, readiness and the status page (docs/status.md). On an address beyond "
        "loopback the page shows clients to other hosts only with the token of control.token.file. off or empty: no "
        "HTTP at all.",
    )
    instance_id: str = option(
        socket.gethostname(),
        pattern("[A-Za-z0-9._-]{1,200}", "1 to 200 of letters, digits, dot, underscore and hyphen"),
        "The name of this kproxy. Two running instances must never share it, and a restarted one must keep it.",
        default_text="the host name",
    )
    broker_host_pattern: str | None = option(
        None,
        HOST_PATTERN,
        "One port for all brokers: clients receive this name for each broker, with its id in place of {id}, at the "
        "port of listen; the TLS server name (SNI) tells kproxy which broker they mean. Every name must lead to "
        "kproxy and be in its certificate. Use it behind one port of a load balancer.",
        default_text="each broker has a port of its own",
    )
    proxy_protocol_hosts: tuple[str, ...] = option(
        (),
        PATTERNS,
        "Load balancers, by patterns of their addresses, that begin each connection with a PROXY protocol header "
        "(version 1 or 2), before TLS. The client's address in it counts for retries, limits, ACL rules and logs. A "
        "connection from there without the header is closed; from other hosts a header is never read. localhost means "
        "every loopback address.",
    )
    ssl_certificate_location: Path | None = option(
        None,
        OPTIONAL_PATH,
        "PEM file of the certificate for clients, with the intermediate certificates. If given, clients must use TLS "
        "(1.2 or later). kproxy reads TLS files again when they change; open connections continue.",
        group="TLS to clients",
    )
    ssl_key_location: Path | None = option(
        None, OPTIONAL_PATH, "PEM file of the certificate's private key, if it is not in the same file."
    )
    ssl_key_password_location: Path | None = option(
        None, OPTIONAL_PATH, "File whose first line is the password of the key, if the key is encrypted."
    )
    ssl_client_auth: str = option(
        "none",
        choice("none", "requested", "required"),
        "Whether clients must present a certificate (mTLS). requested: they need not, but a presented certificate "
        "must be valid. Kafka's ssl.client.auth.",
    )
    ssl_ca_location: Path | None = option(
        None,
        OPTIONAL_PATH,
        "PEM file of the authorities that sign the clients' certificates; required by ssl.client.auth.",
    )
    ssl_principal_mapping_rules: tuple[MappingRule, ...] = option(
        DEFAULT_MAPPING,
        MAPPING_RULES,
        "How the subject of a client's certificate becomes its principal: RULE:PATTERN/REPLACEMENT/CASE and DEFAULT "
        "(the whole subject), separated by commas; CASE is L, U or nothing. The first rule whose pattern matches the "
        "whole subject counts; a subject that no rule matches is refused. Kafka's ssl.principal.mapping.rules.",
    )
    sasl_enabled_mechanisms: tuple[str, ...] = option(
        (),
        MECHANISM_LIST,
        "The mechanisms by which clients authenticate at kproxy. Off: SASL passes through to the broker. Kafka's "
        "sasl.enabled.mechanisms.",
        group="SASL of clients",
        default_text="off",
    )
    sasl_credentials_location: Path | None = option(
        None,
        OPTIONAL_PATH,
        "File of the users of PLAIN and SCRAM, written by kproxy credentials. It contains no passwords, only salted "
        "hashes. kproxy reads it again when it changes.",
    )
    connections_max_reauth_ms: int = option(
        0,
        whole_number(0, _DAY_MS, "ms"),
        "A client must authenticate again within this time, or its connection is closed. 0: only when its token "
        "expires. Kafka's connections.max.reauth.ms.",
    )
    connection_failed_authentication_delay_ms: int = option(
        100,
        whole_number(0, _HOUR_MS, "ms"),
        "kproxy waits this long before it answers a failed login, so that guessing takes time. Kafka's "
        "connection.failed.authentication.delay.ms.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = option(
        None,
        KEY_URL,
        "Address of the token issuer's public keys, a JSON Web Key Set. Needs kproxy[oauth]. Kafka's "
        "sasl.oauthbearer.jwks.endpoint.url.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = option(
        3_600_000,
        _MS,
        "kproxy fetches the keys again after this time, and at once for a token with an unknown key, but at most "
        "every 10 s. Kafka's sasl.oauthbearer.jwks.endpoint.refresh.ms.",
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
        "How far the issuer's clock may differ from this host's. Kafka's sasl.oauthbearer.clock.skew.seconds.",
    )
    sasl_oauthbearer_sub_claim_name: str = option(
        "sub",
        pattern("[!-~]{1,200}", "the name of a claim"),
        "The claim that contains the user's name. Kafka's sasl.oauthbearer.sub.claim.name.",
    )
    sasl_oauthbearer_scope_claim_name: str = option(
        "scope",
        pattern("[!-~]{1,200}", "the name of a claim"),
        "The claim that contains the scopes of a token. Kafka's sasl.oauthbearer.scope.claim.name.",
    )
    sasl_oauthbearer_expected_scope: tuple[str, ...] = option(
        (), WORD_LIST, "A token must grant all of these.", default_text="none"
    )
    acl_file: Path | None = option(
        None,
        OPTIONAL_PATH,
        "YAML file of rules: which principals may do what with which topics, groups, transactional ids and the "
        "cluster. If given, everything that no rule allows is refused. kproxy reads it again when it changes; kproxy "
        "acl checks and explains it. See docs/security.md.",
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
        "YAML file of limits by principal and client.id: bytes and requests per second, connections. kproxy reads it "
        "again when it changes. See docs/security.md.",
        default_text="off: nothing is limited",
    )
    quota_throttle_max_ms: int = option(
        5_000,
        whole_number(1, 60_000, "ms"),
        "The longest time for which a client that exceeds a limit of quotas.file is muted. Keep it well below the "
        "time after which clients give up a request.",
    )
    upstream_security_protocol: str = option(
        "plaintext",
        choice("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
        "How kproxy connects to brokers. Kafka's security.protocol.",
        group="TLS to brokers",
    )
    upstream_ssl_ca_location: Path | None = option(
        None,
        OPTIONAL_PATH,
        "PEM file of the authorities that sign the brokers' certificates.",
        default_text="the system's authorities",
    )
    upstream_ssl_endpoint_identification_algorithm: str = option(
        "https",
        choice("https", "none"),
        "https: a broker's certificate must name the host that kproxy connects to. Kafka's "
        "ssl.endpoint.identification.algorithm.",
    )
    upstream_ssl_certificate_location: Path | None = option(
        None, OPTIONAL_PATH, "PEM file of the certificate that kproxy presents to brokers that ask for one (mTLS)."
    )
    upstream_ssl_key_location: Path | None = option(
        None, OPTIONAL_PATH, "PEM file of the certificate's private key, if it is not in the same file."
    )
    upstream_ssl_key_password_location: Path | None = option(
        None, OPTIONAL_PATH, "File whose first line is the password of the key, if the key is encrypted."
    )
    upstream_sasl_mechanism: str = option(
        "SCRAM-SHA-512",
        choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"),
        "How kproxy authenticates at brokers if upstream.security.protocol is sasl_plaintext or sasl_ssl. Kafka's "
        "sasl.mechanism. AWS_MSK_IAM signs tokens with the AWS credentials of the environment and sends them by "
        "OAUTHBEARER.",
        group="SASL to brokers",
    )
    upstream_sasl_username: str | None = option(None, OPTIONAL_TEXT, "The user name of kproxy for PLAIN or SCRAM.")
    upstream_sasl_password_location: SecretLocation | None = option(
        None,
        SECRET,
        "Where the password is: a file, whose first line is the password, or env:VARIABLE. kproxy reads it again at "
        "each login, so it can change while kproxy runs.",
    )
    upstream_sasl_oauthbearer_token_location: SecretLocation | None = option(
        None,
        SECRET,
        "File with the token for OAUTHBEARER, if another program renews it; kproxy reads it at each login.",
    )
    upstream_sasl_oauthbearer_token_endpoint_url: str | None = option(
        None,
        TOKEN_URL,
        "Address from which kproxy requests tokens for OAUTHBEARER by client credentials. Kafka's "
        "sasl.oauthbearer.token.endpoint.url.",
    )
    upstream_sasl_oauthbearer_client_id: str | None = option(
        None, OPTIONAL_TEXT, "The client id of kproxy at the token endpoint."
    )
    upstream_sasl_oauthbearer_client_secret_location: SecretLocation | None = option(
        None, SECRET, "Where the client secret is; kproxy reads it for each token."
    )
    upstream_sasl_oauthbearer_scope: str | None = option(
        None, OPTIONAL_TEXT, "The scope of the tokens that kproxy requests.", default_text="the endpoint's own"
    )
    upstream_sasl_oauthbearer_extensions: tuple[str, ...] = option(
        (),
        EXTENSIONS,
        "NAME=VALUE pairs to send with the token, which some providers require (KIP-342): logicalCluster=lkc-1.",
    )
    upstream_sasl_aws_region: str | None = option(
        None, OPTIONAL_TEXT, "The region of the cluster, for AWS_MSK_IAM; needs kproxy[msk]."
    )
    upstream_sasl_identity: str = option(
        "kproxy",
        choice("kproxy", "client", "mapped"),
        "The identity with which clients' requests reach a broker that requires SASL. kproxy: all as kproxy itself. "
        "client: each connection as its client, whose own SASL passes through to the broker. mapped: as "
        "upstream.sasl.identities.file says.",
    )
    upstream_sasl_identities_file: Path | None = option(
        None,
        OPTIONAL_PATH,
        "File that maps principals of clients to identities at the brokers, for upstream.sasl.identity = mapped. "
        "kproxy reads it again when it changes; see docs/security.md.",
    )
    max_frame_bytes: int = option(
        104_857_600,
        _BYTES,
        "The longest request of a client; a longer one closes its connection. Kafka's socket.request.max.bytes. If "
        "not given, never more than buffer.memory.",
        group="Memory and sizes",
        change=Change.NEW_CONNECTIONS,
    )
    request_max_bytes: int = option(
        4 * _MIB,
        _BYTES,
        "The longest request of a client other than Produce; a longer one closes its connection. kproxy decodes such "
        "requests as a whole. Raise it for requests with very many names, such as JoinGroup and SyncGroup of huge "
        "groups. If not given, never more than max.frame.bytes.",
        change=Change.NEW_CONNECTIONS,
    )
    request_max_elements: int = option(
        20_000,
        whole_number(1_000, _INT32_MAX, "elements"),
        "The most array elements (topics, partitions, groups, ...) in one request other than Produce; a request with "
        "more closes its connection. 20,000 elements take about 100 ms with rules (acl.file), and kproxy serves no "
        "other client meanwhile. Raise it only for clients that ask for more partitions at once. Lists of plain "
        "numbers do not count.",
        change=Change.NEW_CONNECTIONS,
    )
    connection_buffer_bytes: int = option(
        8 * _MIB,
        _MEMORY,
        "The bytes of requests that kproxy holds for one connection before it stops reading from it. The default "
        "holds 5 requests of the common 1 MiB in flight; a single longer request still passes. If not given, never "
        "more than buffer.memory.",
    )
    buffer_memory: int = option(
        128 * _MIB,
        _MEMORY,
        "The bytes of requests and responses that the whole process holds before it stops reading from clients. So a "
        "slow broker slows its clients and does not grow the heap. It holds at least one request of max.frame.bytes.",
    )
    max_connections: int = option(
        10_000,
        whole_number(1, 1_000_000, "connections"),
        "The most clients connected at the same time; kproxy closes further connections at once and counts them, so "
        "that a reconnect storm cannot use all file descriptors.",
        change=Change.RELOAD,
    )
    max_connections_per_ip: int = option(
        1_000_000,
        whole_number(1, 1_000_000, "connections"),
        "Like max.connections, for each address of clients (IPv6: each /64 network), so that one host that leaks "
        "connections, or attacks, leaves room to the others. Not limited by default, because a sidecar's clients all "
        "have one address. Kafka's max.connections.per.ip.",
        change=Change.RELOAD,
    )
    decompression_max_bytes: int = option(
        64 * _MIB,
        _BYTES,
        "The longest content of the compressed batches of one request that kproxy must convert. It guards against a "
        "few bytes that unpack to gigabytes. Batches that need no conversion are never unpacked.",
    )
    max_message_bytes: int = option(
        1_048_588,
        _BYTES,
        "kproxy splits converted batches so that none is longer. Kafka's message.max.bytes; set it to the smallest of "
        "your topics. If not given, never more than max.frame.bytes.",
        change=Change.NEW_CONNECTIONS,
    )
    fetch_max_bytes: int = option(
        16 * _MIB,
        _BYTES,
        "The longest Fetch response that kproxy filters or converts, and so holds in memory: kproxy asks the broker "
        "for no more at once. Old clients ask for at most 1 MiB for each partition by default.",
        change=Change.NEW_CONNECTIONS,
    )
    frame_timeout_ms: int = option(
        30_000,
        _MS,
        "A request must be complete within this time after its first byte, otherwise kproxy closes its connection: "
        "half a request must not hold memory without end.",
        group="Times",
        change=Change.RELOAD,
    )
    ssl_handshake_timeout_ms: int = option(
        10_000,
        _MS,
        "A client must finish its TLS handshake within this time after it connected, otherwise kproxy disconnects it. "
        "Each unfinished handshake holds about 20 KB. Raise it for clients on slow networks.",
        change=Change.RELOAD,
    )
    connections_max_idle_ms: int = option(
        600_000,
        _MS,
        "kproxy disconnects a client that sends nothing for this time. Kafka's connections.max.idle.ms.",
        change=Change.RELOAD,
    )
    upstream_connect_timeout_ms: int = option(
        10_000,
        _MS,
        "After this time kproxy gives up an attempt to connect to a broker, and tries the next. Kafka's "
        "socket.connection.setup.timeout.ms.",
    )
    upstream_request_timeout_ms: int = option(
        30_000,
        _MS,
        "A broker that has not answered a request after this time counts as lost. A request with its own time-out "
        "(Produce, Fetch, JoinGroup) has that time in addition. Kafka's request.timeout.ms.",
    )
    retry_backoff_ms: int = option(100, _MS, "First pause before a retry towards a broker; doubles with every failure.")
    retry_backoff_max_ms: int = option(
        1_000, _MS, "Longest pause between retries; short, because clients wait meanwhile."
    )
    metadata_max_age_ms: int = option(
        30_000,
        _MS,
        "kproxy asks for the members of the cluster at least this often, so that a new broker has its port before "
        "clients need it. Errors refresh at once.",
    )
    delivery_timeout_ms: int = option(
        120_000,
        _MS,
        "How long kproxy keeps sending a batch without an outcome after its client has disconnected. Kafka's "
        "delivery.timeout.ms.",
    )
    shutdown_grace_ms: int = option(
        10_000,
        whole_number(0, _HOUR_MS, "ms"),
        "After SIGTERM, the time for requests in flight to be answered and for open transactions to be decided. Keep "
        "it well below the 30 s that Kubernetes allows.",
        change=Change.RELOAD,
    )
    shutdown_delay_ms: int = option(
        0,
        whole_number(0, _HOUR_MS, "ms"),
        "After SIGTERM, the time for which kproxy still accepts clients but reports that it is not ready, so that "
        "load balancers notice first. It comes before shutdown.grace.ms.",
        change=Change.RELOAD,
    )
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
        _MS,
        "How long after the end of a connection kproxy compares what its client may not have received a response for "
        "with what the same producer sends. Make it longer than clients retry: Kafka's delivery.timeout.ms. A longer "
        "window needs memory for each unconfirmed batch.",
    )
    clean_close_window_ms: int = option(
        10_000,
        whole_number(0, _DAY_MS, "ms"),
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
        _MS,
        "How long a client waits for a response at most. A connection that stays open for 1.5 times this time after a "
        "response proves that the client received it.",
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
        _MS,
        "With fleet.retries.enable: how long kproxy waits until another instance has noticed that a client has left "
        "it. After that kproxy fences the producer ids that the other instance has for this client, and a connection "
        "that is in use there ends.",
    )
    recovery_max_bytes: int = option(
        16 * _MIB,
        _BYTES,
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
    transactions_home: tuple[HomeRule, ...] = option(
        (HomeRule("*", Home.AUTO),),
        HOME_RULES,
        "Which coordinator decides the transactions of a producer: its broker, or kproxy in its own log, whose "
        "consumers must read through kproxy. By pattern of transactional ids; the first that matches counts. auto: "
        "the broker if it serves transactions, but kproxy for clients that know nothing of them. broker-fenced: the "
        "broker, asked by kproxy, so that each transaction has its own epoch (KIP-890). Let the broker decide for "
        "Kafka Streams, Connect and Flink: kproxy refuses compacted topics.",
        group="Transactions",
    )
    transactional_id_clients: tuple[PermitRule, ...] = option(
        (),
        PERMIT_RULES,
        "Which clients may use which transactional ids, by patterns of both. An id that a rule names is for clients "
        "whose client.id matches one of its rules, or whose principal does, if the rule says User:...; others receive "
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED. An id that no rule names is for all.",
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
        "Applications that know nothing of transactions: everything that a producer with a matching client.id writes "
        "between two OffsetCommits is one transaction with these offsets. The consumer has the same client.id, or the "
        "given group or client.id: etl-*,loader=group:loaders,out=client:in. Each application needs its own names.",
    )
    on_offset_commit_timeout_ms: int = option(
        60_000,
        _MS,
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
        7 * _DAY_MS,
        whole_number(1, 365 * _DAY_MS, "ms"),
        "kproxy forgets a transactional id without a transaction for this time. KIP-98's name; Kafka's is "
        "transactional.id.expiration.ms.",
    )
    transaction_max_timeout_ms: int = option(
        900_000,
        _MS,
        "The longest transaction.timeout.ms that a producer may ask for; more is refused, because read_committed "
        "consumers wait at an open transaction. Kafka's transaction.max.timeout.ms.",
    )
    unknown_producer_ids: str = option(
        "reject",
        choice("reject", "wait"),
        "What happens to data of kproxy's transactions that the transaction log does not contain because it was lost. "
        "reject: readers wait for transaction.max.timeout.ms, and then skip the data. wait: they wait until you run "
        "kproxy txn reject.",
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
        100 * _MIB,
        whole_number(_MIB, _INT32_MAX, "bytes"),
        "segment.bytes of __kproxy_transaction_state when kproxy creates it.",
    )
    deliver_codecs: tuple[DeliverRule, ...] = option(
        (DeliverRule("kafka-node-client*", ((3, 1),)), DeliverRule("no-kafka-client*", ((2, 1), (3, 1)))),
        DELIVER_RULES,
        "Codecs for consumers that cannot read others; the first matching client.id pattern counts. The default helps "
        "two Node.js clients that hand on compressed bytes as data, or crash. kproxy always replaces zstd by gzip "
        "below Fetch v10, which has no zstd.",
        group="Old clients",
        change=Change.NEW_CONNECTIONS,
    )
    legacy_isolation_level: str = option(
        READ_COMMITTED,
        ISOLATION_LEVEL,
        "The isolation level of consumers that cannot name one (Fetch v0-v3, ListOffsets v0-v1). read_committed: they "
        "see no records of aborted or undecided transactions.",
        change=Change.NEW_CONNECTIONS,
    )
    isolation_level_overrides: tuple[IsolationRule, ...] = option(
        (),
        ISOLATION_RULES,
        "The isolation level of consumers whatever they ask for; the first matching client.id pattern counts. For "
        "clients without an isolation.level, or whose read_committed delivers aborted records (kafka-go, kafka-python "
        "before 3).",
        change=Change.NEW_CONNECTIONS,
    )
    legacy_clients_max: int = option(
        200,
        whole_number(0, 100_000, "clients"),
        "The number of clients that kproxy_legacy_requests_total distinguishes; further clients are counted as one, "
        "so that random client ids cannot flood the metrics.",
    )
    control_socket: Path | None = option(
        None,
        OPTIONAL_PATH,
        "Unix socket of the control API (begin, commit, abort, prepare; see docs/transactions.md), for this user "
        "only: mode 0600. Off by default, because the API changes state. kproxy txn expects it at "
        "/run/kproxy/control.sock.",
        group="Control",
    )
    control_http: Address | None = option(
        None,
        OPTIONAL_LISTEN_ADDRESS,
        "Address of the control API for programs that cannot use the socket. Needs control.token.file. Beyond loopback "
        "it also needs control.ssl.certificate.location, because the token must not travel in plain text.",
    )
    control_token_file: Path | None = option(
        None,
        OPTIONAL_PATH,
        "File with the token that every request to control.http must carry, and every abort on the status page: 16 to "
        "1024 printable characters. kproxy reads it at its start.",
    )
    control_ssl_certificate_location: Path | None = option(
        None,
        OPTIONAL_PATH,
        "PEM file of the certificate for control.http, with the intermediate certificates. If given, control.http "
        "speaks HTTPS (TLS 1.2 or later) and may be beyond loopback. kproxy reads TLS files again when they change.",
    )
    control_ssl_key_location: Path | None = option(
        None, OPTIONAL_PATH, "PEM file of that certificate's private key, if it is not in the same file."
    )
    control_ssl_key_password_location: Path | None = option(
        None, OPTIONAL_PATH, "File whose first line is the password of that key, if the key is encrypted."
    )
    handover_socket: Path | None = option(
        None,
        OPTIONAL_PATH,
        "Unix socket at which kproxy run --replace, by the same user, takes over the ports of this process, which "
        "then ends; mode 0600. No connection is refused meanwhile.",
    )
    log_level: str = option(
        "info",
        LEVEL,
        "The lowest level that is logged; info is quiet. kproxy log-level sets it while kproxy runs.",
        group="To watch",
        change=Change.RELOAD,
    )
    log_level_overrides: tuple[LogLevelRule, ...] = option(
        (),
        LOG_LEVEL_RULES,
        "Levels for parts of kproxy, by the subsystem that each line names: server=debug,tls=error.",
        change=Change.RELOAD,
    )
    log_format: str = option(
        "auto",
        choice("auto", "console", "json"),
        "auto: console on a terminal, otherwise one JSON object for each line.",
        change=Change.RELOAD,
    )
    otel_exporter_otlp_endpoint: str | None = option(
        None,
        OTLP_ENDPOINT,
        "Address of an OTLP collector (HTTP) for traces; /v1/traces is added. Needs the extra otel. Set headers and "
        "certificates by OpenTelemetry's own variables, such as OTEL_EXPORTER_OTLP_HEADERS.",
    )
    otel_traces_sampler_arg: float = option(
        0.01,
        RATIO,
        "The share of requests and transactions that are traced if their records carry no W3C context; if they do, "
        "the context decides. OpenTelemetry's OTEL_TRACES_SAMPLER_ARG of parentbased_traceidratio.",
    )
    otel_service_name: str = option(
        "kproxy", pattern("[ -~]{1,200}", "1 to 200 printable ASCII characters"), "The name of this service in traces."
    )
    otel_bsp_schedule_delay_ms: int = option(
        5_000, _MS, "kproxy sends spans at least this often. OpenTelemetry's OTEL_BSP_SCHEDULE_DELAY."
    )
    otel_bsp_max_queue_size: int = option(
        2_048,
        whole_number(1, 1_000_000, "spans"),
        "Finished spans that may wait to be sent; further ones are dropped and counted. OTEL_BSP_MAX_QUEUE_SIZE.",
    )
    otel_bsp_max_export_batch_size: int = option(
        512,
        whole_number(1, 1_000_000, "spans"),
        "The most spans in one export; kproxy sends that many without waiting. OTEL_BSP_MAX_EXPORT_BATCH_SIZE.",
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
