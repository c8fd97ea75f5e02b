"""Rules between options: each value is fine alone, together they cannot work."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final

from kproxy.config.login_values import check_logins
from kproxy.config.model import Config
from kproxy.config.values import show
from kproxy.dedup.lane_retention import SPARE_PART
from kproxy.proxy.routing import Address

# In this order: max_frame_bytes, a bound of others, is itself bounded by the first.
_BOUNDED_BY = (
    ("max_frame_bytes", "buffer_memory"),
    ("request_max_bytes", "max_frame_bytes"),
    ("connection_buffer_bytes", "buffer_memory"),
    ("max_message_bytes", "max_frame_bytes"),
    ("retry_backoff_ms", "retry_backoff_max_ms"),
)


def fit_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Values by attribute; defaults above a lower bound that was given are reduced to it: one option is enough."""
    fitted = dict(values)
    defaults = {field.name: field.default for field in fields(Config)}
    for small, large in _BOUNDED_BY:
        if small not in values and large in fitted:
            fitted[small] = min(defaults[small], fitted[large])
    return fitted


def cross_check(config: Config) -> list[str]:
    """One line for each rule that is broken; empty if all is well."""
    return [line for check in _CHECKS for line in check(config)]


def _overlap(one: Address, other: Address) -> bool:
    same_host = one.host == other.host or one.is_wildcard or other.is_wildcard
    return same_host and one.port == other.port != 0


def _check_addresses(config: Config) -> Iterator[str]:
    if config.listen in config.bootstrap_servers:
        yield f"listen = '{config.listen}' is one of bootstrap.servers: kproxy would connect to itself"
    for server in config.bootstrap_servers:
        if config.broker_ports and server.host == config.listen.host and server.port in config.broker_ports:
            yield f"broker.ports = '{show(config.broker_ports)}' contains the port of the bootstrap server '{server}'"
    for name, address in _pages(config):
        if _overlap(address, config.listen):
            yield f"{name} = '{address}' is the listen address: they need different ports"
    if config.http is not None and config.control_http is not None and _overlap(config.http, config.control_http):
        yield f"control.http = '{config.control_http}' is the address of http: they need different ports"


def _pages(config: Config) -> list[tuple[str, Address]]:
    """The addresses of HTTP listeners, with their options."""
    named = (("http", config.http), ("control.http", config.control_http))
    return [(name, address) for name, address in named if address is not None]


def _check_control(config: Config) -> Iterator[str]:
    certificate = config.control_ssl_certificate_location
    if config.control_http is None:
        if certificate is not None:
            yield f"control.ssl.certificate.location = '{certificate}' needs control.http"
        return
    if not config.control_http.is_loopback and certificate is None:
        yield (
            f"control.http = '{config.control_http}' must be a loopback address, or needs "
            "control.ssl.certificate.location: without it the token travels in plain text"
        )
    if config.control_token_file is None:
        yield f"control.http = '{config.control_http}' needs control.token.file: nobody may decide without a token"


def _check_ports(config: Config) -> Iterator[str]:
    ports = config.broker_port_range
    shown = f"broker.ports = '{show(ports)}'" if ports else ""
    if config.listen.port in ports:
        yield f"{shown} contains the listen port {config.listen.port}"
    for name, address in _pages(config):
        if any(_overlap(address, Address(config.listen.host, port)) for port in ports):
            yield f"{shown} contains the port of {name} = '{address}'"
    if config.listen.port and not ports:
        yield f"listen = '{config.listen}' leaves no port for brokers after it: give broker.ports"
    advertised = config.advertised_broker_ports
    if advertised is not None and len(advertised) != len(ports):
        yield (
            f"advertised.broker.ports = '{show(advertised)}' must name as many ports as broker.ports, "
            f"which has {len(ports)}"
        )


def _check_tls(config: Config) -> Iterator[str]:
    for side in ("", "upstream_", "control_"):
        key = getattr(config, f"{side}ssl_key_location")
        if key is not None and getattr(config, f"{side}ssl_certificate_location") is None:
            name = side.replace("_", ".")
            yield f"{name}ssl.key.location = '{key}' needs {name}ssl.certificate.location"
    if config.ssl_client_auth != "none" and config.ssl_certificate_location is None:
        yield f"ssl.client.auth = '{config.ssl_client_auth}' needs TLS: give ssl.certificate.location"
    if config.ssl_client_auth != "none" and config.ssl_ca_location is None:
        yield f"ssl.client.auth = '{config.ssl_client_auth}' needs ssl.ca.location: who signs the clients' certificates"
    if config.broker_host_pattern is not None and config.ssl_certificate_location is None:
        yield f"broker.host.pattern = '{config.broker_host_pattern}' needs TLS: give ssl.certificate.location"
    if not config.upstream_security_protocol.endswith("ssl"):
        for part in ("ca", "certificate"):
            if getattr(config, f"upstream_ssl_{part}_location") is not None:
                yield f"upstream.ssl.{part}.location needs upstream.security.protocol = 'ssl' or 'sasl_ssl'"


#: What each mechanism cannot do without; one of the lists will do.
_LOGIN_NEEDS: Final = {
    "PLAIN": (("upstream_sasl_username", "upstream_sasl_password_location"),),
    "SCRAM-SHA-256": (("upstream_sasl_username", "upstream_sasl_password_location"),),
    "SCRAM-SHA-512": (("upstream_sasl_username", "upstream_sasl_password_location"),),
    "OAUTHBEARER": (
        ("upstream_sasl_oauthbearer_token_location",),
        (
            "upstream_sasl_oauthbearer_token_endpoint_url",
            "upstream_sasl_oauthbearer_client_id",
            "upstream_sasl_oauthbearer_client_secret_location",
        ),
    ),
    "AWS_MSK_IAM": (("upstream_sasl_aws_region",),),
}


def _check_login(config: Config) -> Iterator[str]:
    protocol, mechanism = config.upstream_security_protocol, config.upstream_sasl_mechanism
    names = sorted({name for lists in _LOGIN_NEEDS.values() for needs in lists for name in needs})
    if not protocol.startswith("sasl"):
        given = [name.replace("_", ".") for name in names if getattr(config, name) is not None]
        if given:
            yield f"{given[0]} needs upstream.security.protocol = 'sasl_plaintext' or 'sasl_ssl'"
        return
    yield from _check_identity(config)
    lists = _LOGIN_NEEDS[mechanism]
    if not any(all(getattr(config, name) is not None for name in needs) for needs in lists):
        wanted = ", or ".join(" and ".join(name.replace("_", ".") for name in needs) for needs in lists)
        yield f"upstream.security.protocol = '{protocol}' with upstream.sasl.mechanism = '{mechanism}' needs {wanted}"


def _check_rules(config: Config) -> Iterator[str]:
    if config.super_users and config.acl_file is None:
        yield f"super.users = '{show(config.super_users)}' needs acl.file: without rules all is allowed"


def _check_identity(config: Config) -> Iterator[str]:
    identity, mechanism = config.upstream_sasl_identity, config.upstream_sasl_mechanism
    if identity == "client" and config.sasl_enabled_mechanisms:
        yield "upstream.sasl.identity = 'client' needs sasl.enabled.mechanisms = off: clients can log in only once"
    if (identity == "mapped") is not (config.upstream_sasl_identities_file is not None):
        yield f"upstream.sasl.identity = '{identity}': 'mapped' and upstream.sasl.identities.file go together"
    if identity == "mapped" and mechanism not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        yield f"upstream.sasl.identity = 'mapped' needs PLAIN or SCRAM, not upstream.sasl.mechanism = '{mechanism}'"


def _check_sizes(config: Config) -> Iterator[str]:
    for small, large in _BOUNDED_BY:
        low, high = getattr(config, small), getattr(config, large)
        if low > high:
            yield f"{small.replace('_', '.')} = {low} must not exceed {large.replace('_', '.')} = {high}"


def _check_retention(config: Config) -> Iterator[str]:
    retention_ms = config.producer_state_log_retention_ms
    least_ms = SPARE_PART * max(config.retry_window_ms, config.delivery_timeout_ms)
    if retention_ms < least_ms:
        yield (
            f"producer.state.log.retention.ms = {retention_ms} must be at least {least_ms}, {SPARE_PART} times "
            "retry.window.ms and delivery.timeout.ms: an entry must not expire before the retries that it is for"
        )


_CHECKS: Final = (
    _check_addresses,
    _check_control,
    _check_ports,
    _check_tls,
    _check_login,
    check_logins,
    _check_rules,
    _check_sizes,
    _check_retention,
)
