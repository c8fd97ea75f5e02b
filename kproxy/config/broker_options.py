"""Options of the connections to brokers."""

import socket
from dataclasses import field
from pathlib import Path

from kproxy.config.option_units import MS
from kproxy.config.options import OptionGroup, describe, option
from kproxy.config.secrets import SECRET, SecretLocation
from kproxy.config.values import (
    ADDRESSES,
    EXTENSIONS,
    OPTIONAL_PATH,
    OPTIONAL_TEXT,
    TOKEN_URL,
    choice,
    pattern,
)
from kproxy.proxy.routing import Address


class ClusterOptions(OptionGroup):
    """The cluster, and the name of this kproxy in it."""

    bootstrap_servers: tuple[Address, ...] = field(
        metadata=describe(
            ADDRESSES,
            "Brokers that kproxy asks for the members of the cluster; two or three are enough. Write an IPv6 address "
            "in brackets.",
            group="Addresses",
        )
    )
    instance_id: str = option(
        socket.gethostname(),
        pattern("[A-Za-z0-9._-]{1,200}", "1 to 200 of letters, digits, dot, underscore and hyphen"),
        "The name of this kproxy. Two running instances must never share it, and a restarted one must keep it.",
        default_text="the host name",
    )


class BrokerSecurityOptions(ClusterOptions):
    """How kproxy connects to brokers, and authenticates there."""

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
        None, OPTIONAL_PATH, "PEM file of the certificate's private key, if it is in another file."
    )
    upstream_ssl_key_password_location: Path | None = option(
        None, OPTIONAL_PATH, "File whose first line is the password of the encrypted key."
    )
    upstream_sasl_mechanism: str = option(
        "SCRAM-SHA-512",
        choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"),
        "How kproxy authenticates at brokers with sasl_plaintext or sasl_ssl. Kafka's sasl.mechanism. "
        "AWS_MSK_IAM signs tokens with the AWS credentials of the environment and sends them by OAUTHBEARER.",
        group="SASL to brokers",
    )
    upstream_sasl_username: str | None = option(None, OPTIONAL_TEXT, "The user name of kproxy for PLAIN or SCRAM.")
    upstream_sasl_password_location: SecretLocation | None = option(
        None,
        SECRET,
        "Where the password is: a file, whose first line is the password, or env:VARIABLE. kproxy reads it at "
        "each login.",
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
        None, OPTIONAL_TEXT, "The region of the cluster, for AWS_MSK_IAM; needs the extra msk."
    )
    upstream_sasl_identity: str = option(
        "kproxy",
        choice("kproxy", "client", "mapped"),
        "The identity of clients' requests at a broker that requires SASL. kproxy: kproxy's own for all. client: "
        "that of each client, whose own SASL passes through to the broker. mapped: by "
        "upstream.sasl.identities.file.",
    )
    upstream_sasl_identities_file: Path | None = option(
        None,
        OPTIONAL_PATH,
        "File that maps principals of clients to identities at the brokers, for upstream.sasl.identity = mapped "
        "(docs/security.md). Read again when it changes.",
    )

    @property
    def logs_in(self) -> bool:
        """Whether kproxy logs in at brokers by SASL."""
        return self.upstream_security_protocol.startswith("sasl")

    @property
    def clients_log_in(self) -> bool:
        """Whether each client logs in at its broker by itself, through kproxy."""
        return self.logs_in and self.upstream_sasl_identity == "client"


class BrokerOptions(ClusterOptions):
    """How long kproxy waits for brokers, and when it retries."""

    upstream_connect_timeout_ms: int = option(
        10_000,
        MS,
        "Time after which kproxy gives up an attempt to connect to a broker, and tries the next. Kafka's "
        "socket.connection.setup.timeout.ms.",
    )
    upstream_request_timeout_ms: int = option(
        30_000,
        MS,
        "A broker that has not answered a request after this time counts as lost. A request with its own time-out "
        "(Produce, Fetch, JoinGroup) has that time in addition. Kafka's request.timeout.ms.",
    )
    retry_backoff_ms: int = option(
        100,
        MS,
        "First pause before a retry towards a broker; it doubles with every failure. kproxy waits for a random "
        "part of it, half or more, so that instances do not retry in step.",
    )
    retry_backoff_max_ms: int = option(
        1_000, MS, "Longest pause between retries; short, because clients wait meanwhile."
    )
    metadata_max_age_ms: int = option(
        30_000,
        MS,
        "kproxy asks for the members of the cluster at least this often, so that a new broker has its port before "
        "clients need it. Errors refresh at once.",
    )
    delivery_timeout_ms: int = option(
        120_000,
        MS,
        "How long kproxy keeps sending a batch without an outcome after its client has disconnected. Kafka's "
        "delivery.timeout.ms.",
    )
