import dataclasses
from pathlib import Path
from typing import Any

import pytest

from kproxy.config import Address, Config
from kproxy.config.option_checks import cross_check, fit_defaults
from kproxy.config.secrets import SecretLocation
from kproxy.config.values import PrincipalList

GOOD = Config(bootstrap_servers=(Address("127.0.0.1", 9092),))


TOKEN = {"control_token_file": Path("/token")}


LOGIN = {
    "upstream_security_protocol": "sasl_plaintext",
    "upstream_sasl_username": "alice",
    "upstream_sasl_password_location": SecretLocation(Path("/password")),
}


def test_defaults_are_fine() -> None:
    assert cross_check(GOOD) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"listen": Address("127.0.0.1", 9092), "broker_ports": range(1, 2)}, "kproxy would connect to itself"),
        ({"http": Address("127.0.0.1", 19092)}, "http = '127.0.0.1:19092' is the listen address"),
        ({"http": Address("0.0.0.0", 19092)}, "is the listen address"),
        ({"broker_ports": range(19090, 19100)}, "broker.ports = '19090-19099' contains the listen port 19092"),
        ({"broker_ports": range(9090, 9100)}, "contains the port of the bootstrap server '127.0.0.1:9092'"),
        ({"http": Address("127.0.0.1", 19100)}, "contains the port of http = '127.0.0.1:19100'"),
        ({"control_http": Address("127.0.0.1", 19092), **TOKEN}, "control.http = '127.0.0.1:19092' is the listen"),
        ({"control_http": Address("127.0.0.1", 19644), **TOKEN}, "is the address of http"),
        ({"control_http": Address("127.0.0.1", 19100), **TOKEN}, "the port of control.http = '127.0.0.1:19100'"),
        ({"control_http": Address("10.0.0.1", 19645), **TOKEN}, "must be a loopback address"),
        ({"control_http": Address("127.0.0.1", 19645)}, "needs control.token.file"),
        (
            {"control_ssl_certificate_location": Path("/c")},
            "control.ssl.certificate.location = '/c' needs control.http",
        ),
        ({"control_ssl_key_location": Path("/k")}, "control.ssl.key.location = '/k' needs control.ssl.certificate.loc"),
        ({"listen": Address("127.0.0.1", 65535)}, "leaves no port for brokers"),
        ({"advertised_broker_ports": range(1, 3)}, "must name as many ports as broker.ports, which has 100"),
        ({"buffer_memory": 1_000_000_00}, "max.frame.bytes = 104857600 must not exceed buffer.memory = 100000000"),
        ({"connection_buffer_bytes": 1 << 30}, "connection.buffer.bytes"),
        ({"max_message_bytes": 1 << 30}, "max.message.bytes"),
        ({"super_users": PrincipalList(["User:a"])}, "super.users = 'User:a' needs acl.file"),
        ({"upstream_ssl_ca_location": Path("/ca"), **LOGIN}, "needs upstream.security.protocol = 'ssl' or 'sasl_ssl'"),
        (
            {"upstream_security_protocol": "sasl_ssl"},
            "needs upstream.sasl.username and upstream.sasl.password.location",
        ),
        ({**LOGIN, "upstream_sasl_mechanism": "OAUTHBEARER"}, "needs upstream.sasl.oauthbearer.token.location, or up"),
        ({**LOGIN, "upstream_sasl_mechanism": "AWS_MSK_IAM"}, "needs upstream.sasl.aws.region"),
        ({**LOGIN, "upstream_sasl_identity": "mapped"}, "'mapped' and upstream.sasl.identities.file go together"),
        ({**LOGIN, "upstream_sasl_identities_file": Path("/ids")}, "= 'kproxy': 'mapped' and upstream.sasl.identities"),
        ({"upstream_sasl_username": "alice"}, "upstream.sasl.username needs upstream.security.protocol = 'sasl_plai"),
        ({"retry_backoff_ms": 2000}, "retry.backoff.ms = 2000 must not exceed retry.backoff.max.ms = 1000"),
        ({"retry_window_ms": 86_400_001}, "producer.state.log.retention.ms = 604800000 must be at least 604800007"),
        ({"producer_state_log_retention_ms": 839_999}, "= 839999 must be at least 840000, 7 times retry.window.ms and"),
        ({"delivery_timeout_ms": 86_400_001}, "producer.state.log.retention.ms = 604800000 must be at least 604800007"),
    ],
)
def test_what_cannot_work_together(changes: dict[str, Any], reason: str) -> None:
    [problem] = cross_check(dataclasses.replace(GOOD, **changes))
    assert reason in problem


@pytest.mark.parametrize(
    "changes",
    [
        {"http": Address("127.0.0.2", 19092)},
        LOGIN,
        {**LOGIN, "upstream_security_protocol": "sasl_ssl", "upstream_ssl_ca_location": Path("/ca")},
        {"http": Address("127.0.0.1", 0), "listen": Address("127.0.0.1", 0)},
        {"http": None},
        {"control_http": Address("localhost", 19645), **TOKEN},
        {"control_http": Address("10.0.0.1", 1), "control_ssl_certificate_location": Path("/c"), **TOKEN},
        {"control_http": Address("127.0.0.1", 0), "http": Address("127.0.0.1", 0), **TOKEN},
        {"broker_ports": range(5, 8), "advertised_broker_ports": range(15, 18)},
        {"listen": Address("10.0.0.1", 9000), "broker_ports": range(9090, 9100)},
    ],
)
def test_what_can_work_together(changes: dict[str, Any]) -> None:
    assert cross_check(dataclasses.replace(GOOD, **changes)) == []


def test_given_values_are_never_changed() -> None:
    values = {"buffer_memory": 1_000_000, "max_frame_bytes": 2_000_000}
    fitted = fit_defaults(values)
    assert fitted == {
        **values,
        "request_max_bytes": 2_000_000,
        "connection_buffer_bytes": 1_000_000,
        "max_message_bytes": 1_048_588,
    }
