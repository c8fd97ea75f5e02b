"""Options of the process: its end, its control, its logs and its traces."""

from pathlib import Path

from kproxy.config.broker_options import ClusterOptions
from kproxy.config.log_levels import LEVEL, LOG_LEVEL_RULES
from kproxy.config.option_units import HOUR_MS, MS
from kproxy.config.options import Change, OptionGroup, option
from kproxy.config.otel_values import OTLP_ENDPOINT, RATIO
from kproxy.config.values import OPTIONAL_LISTEN_ADDRESS, OPTIONAL_PATH, LogLevelRule, choice, pattern, whole_number
from kproxy.proxy.routing import Address


class ShutdownOptions(OptionGroup):
    """How kproxy ends."""

    shutdown_grace_ms: int = option(
        10_000,
        whole_number(0, HOUR_MS, "ms"),
        "After SIGTERM, the time to answer requests in flight and to decide open transactions. Keep it well "
        "below the 30 s that Kubernetes allows.",
        change=Change.RELOAD,
    )
    shutdown_delay_ms: int = option(
        0,
        whole_number(0, HOUR_MS, "ms"),
        "After SIGTERM and before shutdown.grace.ms, the time for which kproxy still accepts clients but reports "
        "that it is not ready, so that load balancers notice first.",
        change=Change.RELOAD,
    )


class ControlOptions(OptionGroup):
    """Where programs and operators reach the process."""

    control_socket: Path | None = option(
        None,
        OPTIONAL_PATH,
        "Unix socket of the control API (begin, commit, abort, prepare; docs/transactions.md), for this user "
        "only: mode 0600. Off by default, because the API changes state. kproxy txn expects it at "
        "/run/kproxy/control.sock.",
        group="Control",
    )
    control_http: Address | None = option(
        None,
        OPTIONAL_LISTEN_ADDRESS,
        "Address of the control API for programs that cannot use the socket. Needs control.token.file, and "
        "beyond loopback control.ssl.certificate.location, so that the token does not travel in plain text.",
    )
    control_token_file: Path | None = option(
        None,
        OPTIONAL_PATH,
        "File with the token of every request to control.http and of every abort on the status page: 16 to 1024 "
        "printable characters. kproxy reads it at its start.",
    )
    control_ssl_certificate_location: Path | None = option(
        None,
        OPTIONAL_PATH,
        "PEM file of the certificate for control.http, with the intermediate certificates: control.http then "
        "speaks HTTPS (TLS 1.2 or later) and may be beyond loopback. Read again when it changes.",
    )
    control_ssl_key_location: Path | None = option(
        None, OPTIONAL_PATH, "PEM file of that certificate's private key, if it is in another file."
    )
    control_ssl_key_password_location: Path | None = option(
        None, OPTIONAL_PATH, "File whose first line is the password of the encrypted key."
    )
    handover_socket: Path | None = option(
        None,
        OPTIONAL_PATH,
        "Unix socket at which kproxy run --replace, by the same user, takes over the ports of this process, which "
        "then ends; mode 0600. No connection is refused meanwhile.",
    )
    fleet_announce_interval_ms: int = option(
        60_000,
        whole_number(0, 600_000, "ms"),
        "How often this instance announces itself (version, addresses, clients, problems) in the topic __kproxy_fleet, "
        "for kproxy fleet and the status pages of all instances on the same brokers; 0: never. Each announcement is "
        "one request. An instance that is late by half an interval counts as silent, so a lower value finds a dead "
        "instance earlier. All instances should have the same value. A cluster that refuses the topic "
        "costs one warning.",
    )


class LogOptions(OptionGroup):
    """What is logged."""

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


class TraceOptions(ClusterOptions):
    """What is traced."""

    otel_exporter_otlp_endpoint: str | None = option(
        None,
        OTLP_ENDPOINT,
        "Address of an OTLP collector (HTTP) for traces; /v1/traces is added. Needs the extra otel. Set headers and "
        "certificates by OpenTelemetry's own variables, such as OTEL_EXPORTER_OTLP_HEADERS.",
    )
    otel_traces_sampler_arg: float = option(
        0.01,
        RATIO,
        "The share of requests and transactions that are traced if their records carry no W3C context, which "
        "would decide. OpenTelemetry's OTEL_TRACES_SAMPLER_ARG of parentbased_traceidratio.",
    )
    otel_service_name: str = option(
        "kproxy", pattern("[ -~]{1,200}", "1 to 200 printable ASCII characters"), "The name of this service in traces."
    )
    otel_bsp_schedule_delay_ms: int = option(
        5_000, MS, "kproxy sends spans at least this often. OpenTelemetry's OTEL_BSP_SCHEDULE_DELAY."
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
