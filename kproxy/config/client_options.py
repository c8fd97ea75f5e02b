"""Options of the connections of clients."""

from fnmatch import fnmatchcase
from pathlib import Path

from kproxy.config.login_values import KEY_URL, MECHANISM_LIST, WORD_LIST
from kproxy.config.option_units import BYTES, DAY_MS, HOUR_MS, INT32_MAX, MEMORY, MIB, MS
from kproxy.config.options import Change, OptionGroup, option
from kproxy.config.values import (
    DELIVER_RULES,
    HOST_PATTERN,
    ISOLATION_LEVEL,
    ISOLATION_RULES,
    LISTEN_ADDRESS,
    MAPPING_RULES,
    OPTIONAL_LISTEN_ADDRESS,
    OPTIONAL_PATH,
    PATTERNS,
    PORTS,
    PRINCIPALS,
    REACHABLE_ADDRESS,
    READ_COMMITTED,
    DeliverRule,
    IsolationRule,
    PrincipalList,
    choice,
    pattern,
    whole_number,
)
from kproxy.proxy.principals import DEFAULT_MAPPING, MappingRule
from kproxy.proxy.routing import Address

_PORTS_AFTER_LISTEN = 100


class ListenOptions(OptionGroup):
    """Where kproxy listens, and the addresses that clients receive."""

    listen: Address = option(
        Address("127.0.0.1", 19092),
        LISTEN_ADDRESS,
        "The address at which clients bootstrap. The default serves clients on this host only; :9092, all IPv4 "
        "and IPv6 addresses, makes kproxy a gateway.",
    )
    advertised_address: Address | None = option(
        None,
        REACHABLE_ADDRESS,
        "The address that clients receive, if it differs from the bound address (NAT, containers).",
        default_text="the listen address; for all addresses, the one that the client connected to",
    )
    broker_ports: range | None = option(
        None,
        PORTS,
        "Each broker gets one port of this range, and kproxy relays the clients of a port to its broker. There "
        "must be a port for each broker.",
        default_text="the 100 ports after the listen port; any free ports if that is 0",
    )
    advertised_broker_ports: range | None = option(
        None,
        PORTS,
        "The ports that clients receive in place of broker.ports, one for one, where ports are mapped between "
        "them and kproxy.",
        default_text="broker.ports",
    )
    http: Address | None = option(
        Address("127.0.0.1", 19644),
        OPTIONAL_LISTEN_ADDRESS,
        "The address of metrics, health, readiness and the status page (docs/status.md). Beyond loopback the "
        "page shows clients to other hosts only with the token of control.token.file. off or empty: no HTTP.",
    )
    broker_host_pattern: str | None = option(
        None,
        HOST_PATTERN,
        "One port for all brokers, for instance behind a load balancer: clients receive this name for each "
        "broker, with its id in place of {id}, at the port of listen. The TLS server name (SNI) tells kproxy "
        "which broker they mean. Every name must lead to kproxy and be in its certificate.",
        default_text="each broker has a port of its own",
    )
    proxy_protocol_hosts: tuple[str, ...] = option(
        (),
        PATTERNS,
        "Load balancers, by patterns of their addresses, that begin each connection with a PROXY protocol header "
        "(version 1 or 2), before TLS. The client's address in it counts for retries, limits, ACL rules and "
        "logs. kproxy closes a connection from there without the header, and reads no header from other hosts. "
        "localhost: every loopback address.",
    )

    @property
    def broker_port_range(self) -> range:
        """The ports to listen on for brokers; empty if any free port will do (listen port 0)."""
        if self.broker_ports is not None:
            return self.broker_ports
        first = self.listen.port + 1
        return range(first, min(first + _PORTS_AFTER_LISTEN, 65536)) if self.listen.port else range(0)


class ClientTlsOptions(OptionGroup):
    """TLS to clients."""

    ssl_certificate_location: Path | None = option(
        None,
        OPTIONAL_PATH,
        "PEM file of the certificate for clients, with the intermediate certificates: clients must then use TLS "
        "(1.2 or later). kproxy reads TLS files again when they change; open connections continue.",
        group="TLS to clients",
    )
    ssl_key_location: Path | None = option(
        None, OPTIONAL_PATH, "PEM file of the certificate's private key, if it is in another file."
    )
    ssl_key_password_location: Path | None = option(
        None, OPTIONAL_PATH, "File whose first line is the password of the encrypted key."
    )
    ssl_client_auth: str = option(
        "none",
        choice("none", "requested", "required"),
        "Whether clients must present a certificate (mTLS). requested: they need not, but a presented one must "
        "be valid. Kafka's ssl.client.auth.",
    )
    ssl_ca_location: Path | None = option(
        None,
        OPTIONAL_PATH,
        "PEM file of the authorities that sign the clients' certificates; required by ssl.client.auth.",
    )
    ssl_principal_mapping_rules: tuple[MappingRule, ...] = option(
        DEFAULT_MAPPING,
        MAPPING_RULES,
        "How the subject of a client's certificate becomes its principal: RULE:PATTERN/REPLACEMENT/CASE (CASE is "
        "L, U or nothing) and DEFAULT (the whole subject), separated by commas. The first rule that matches the "
        "whole subject counts; a subject that no rule matches is refused. Kafka's ssl.principal.mapping.rules.",
    )


class ClientLoginOptions(OptionGroup):
    """How clients authenticate at kproxy."""

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
        "File of the users of PLAIN and SCRAM, written by kproxy credentials: salted hashes, no passwords. Read "
        "again when it changes.",
    )
    connections_max_reauth_ms: int = option(
        0,
        whole_number(0, DAY_MS, "ms"),
        "A client must authenticate again within this time, or its connection is closed. 0: only when its token "
        "expires. Kafka's connections.max.reauth.ms.",
    )
    connection_failed_authentication_delay_ms: int = option(
        100,
        whole_number(0, HOUR_MS, "ms"),
        "Time before kproxy answers a failed login, so that guessing takes longer. Kafka's "
        "connection.failed.authentication.delay.ms.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = option(
        None,
        KEY_URL,
        "Address of the token issuer's public keys, a JSON Web Key Set. Needs the extra oauth. Kafka's "
        "sasl.oauthbearer.jwks.endpoint.url.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = option(
        3_600_000,
        MS,
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


class AccessOptions(OptionGroup):
    """What clients may do, and how much."""

    acl_file: Path | None = option(
        None,
        OPTIONAL_PATH,
        "YAML file of rules: which principals may do what with which topics, groups, transactional ids and the "
        "cluster (docs/security.md). What no rule allows is refused. Read again when it changes; kproxy acl "
        "checks and explains it.",
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
        "YAML file of limits by principal and client.id: bytes and requests per second, connections "
        "(docs/security.md). Read again when it changes.",
        default_text="off: nothing is limited",
    )
    quota_throttle_max_ms: int = option(
        5_000,
        whole_number(1, 60_000, "ms"),
        "The longest time for which kproxy mutes a client that exceeds a limit of quotas.file. Keep it well "
        "below the clients' request time-outs.",
    )


class SizeOptions(OptionGroup):
    """Limits of memory, of requests and of connections."""

    max_frame_bytes: int = option(
        104_857_600,
        BYTES,
        "The longest request of a client; a longer one closes its connection. Kafka's socket.request.max.bytes. "
        "If not given, at most buffer.memory.",
        group="Memory and sizes",
        change=Change.NEW_CONNECTIONS,
    )
    request_max_bytes: int = option(
        4 * MIB,
        BYTES,
        "The longest request of a client other than Produce: kproxy decodes these as a whole. A longer one "
        "closes its connection. Raise it for requests with very many names, such as JoinGroup of huge groups. If "
        "not given, at most max.frame.bytes.",
        change=Change.NEW_CONNECTIONS,
    )
    request_max_elements: int = option(
        20_000,
        whole_number(1_000, INT32_MAX, "elements"),
        "The most array elements (topics, partitions, groups, ...) in one request other than Produce; a request "
        "with more closes its connection. 16 plain numbers in a list count as one. 20,000 elements take about 50 "
        "ms, in which kproxy serves no other client: raise it only for clients that ask for more partitions at "
        "once.",
        change=Change.NEW_CONNECTIONS,
    )
    connection_buffer_bytes: int = option(
        8 * MIB,
        MEMORY,
        "The bytes of requests that kproxy holds for one connection before it stops reading from it; a single "
        "longer request still passes. The default holds 5 requests of 1 MiB in flight. If not given, at most "
        "buffer.memory.",
    )
    buffer_memory: int = option(
        128 * MIB,
        MEMORY,
        "The bytes of requests and responses that the process holds before it stops reading from clients, so "
        "that a slow broker slows its clients and does not grow the heap. It holds at least one request of "
        "max.frame.bytes. A response that kproxy decodes has at most this many bytes, and one array element "
        "(topic, partition, ...) for each 512 bytes of it. Raise it where old clients ask for more than 250,000 "
        "partitions at once.",
    )
    max_connections: int = option(
        10_000,
        whole_number(1, 1_000_000, "connections"),
        "The most clients connected at the same time; kproxy closes further connections at once and counts them, "
        "so that file descriptors outlast a reconnect storm.",
        change=Change.RELOAD,
    )
    max_connections_per_ip: int = option(
        1_000_000,
        whole_number(1, 1_000_000, "connections"),
        "Like max.connections, for each address of clients (IPv6: each /64 network). Not limited by default, "
        "because a sidecar's clients all have one address. Kafka's max.connections.per.ip.",
        change=Change.RELOAD,
    )
    decompression_max_bytes: int = option(
        64 * MIB,
        BYTES,
        "The most bytes to which the compressed batches of one request may unpack where kproxy must convert "
        "them. Batches that need no conversion are never unpacked.",
    )
    max_message_bytes: int = option(
        1_048_588,
        BYTES,
        "kproxy splits converted batches so that none is longer. Kafka's message.max.bytes; set it to the "
        "smallest of your topics. If not given, at most max.frame.bytes.",
        change=Change.NEW_CONNECTIONS,
    )
    fetch_max_bytes: int = option(
        16 * MIB,
        BYTES,
        "The longest Fetch response that kproxy filters or converts in memory: kproxy asks the broker for no "
        "more at once. Old clients ask for at most 1 MiB for each partition by default.",
        change=Change.NEW_CONNECTIONS,
    )


class ClientTimeOptions(OptionGroup):
    """How long a client may take."""

    frame_timeout_ms: int = option(
        30_000,
        MS,
        "A request must be complete within this time after its first byte, otherwise kproxy closes its connection.",
        group="Times",
        change=Change.RELOAD,
    )
    ssl_handshake_timeout_ms: int = option(
        10_000,
        MS,
        "kproxy disconnects a client that has not finished its TLS handshake this long after it connected. Each "
        "unfinished one holds about 20 KB. Raise it for slow networks.",
        change=Change.RELOAD,
    )
    connections_max_idle_ms: int = option(
        600_000,
        MS,
        "kproxy disconnects a client that sends nothing for this time. Kafka's connections.max.idle.ms.",
        change=Change.RELOAD,
    )


class OldClientOptions(OptionGroup):
    """What old clients cannot say or read."""

    deliver_codecs: tuple[DeliverRule, ...] = option(
        (DeliverRule("kafka-node-client*", ((3, 1),)), DeliverRule("no-kafka-client*", ((2, 1), (3, 1)))),
        DELIVER_RULES,
        "Codecs for consumers that cannot read others; the first matching client.id pattern counts. The default "
        "helps two Node.js clients that hand on compressed bytes as data, or crash. Below Fetch v10, which has "
        "no zstd, kproxy always replaces zstd by gzip.",
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
        "How many clients kproxy_legacy_requests_total distinguishes; further ones are counted as one, so that "
        "random client ids cannot flood the metrics.",
    )

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
