"""TLS and SASL of the blocking client, against a TLS listener and the fake broker."""

import json
import socket
import ssl
import threading
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from kproxy.config.values import parse_address
from kproxy.net.tls_context import server_context
from kproxy.proxy.routing import Address
from kproxy.spark.broker_connection import Connection, Protection
from kproxy.spark.kafka_cluster import KafkaCluster
from kproxy.spark.secured_connection import tls_context, token
from kproxy.spark.security_options import KEY_PASSWORD, KEYS, TRUST, Sasl, Secret, Security, Store, security
from kproxy.spark.spark_errors import KafkaError, LoginFailed, OptionError
from kproxy.testing.fake_broker import SaslRules
from tests.net.certificates import Authority
from tests.spark.fake_cluster import Fake, fake_cluster

MODULES = "org.apache.kafka.common.security"
SECONDS = 20.0
RULES = SaslRules(users={"ann": "s3cret"}, tokens={"t0ken": "ann"})


@contextmanager
def tls_listener(context: ssl.SSLContext, target: Address) -> Iterator[Address]:
    """Takes connections, one at a time, and copies bytes between each and ``target``."""
    listener = socket.create_server(("127.0.0.1", 0))

    def copy(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for each in (source, sink):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def run() -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                serve(listener.accept()[0])

    def serve(peer: socket.socket) -> None:
        try:
            client = context.wrap_socket(peer, server_side=True)
        except OSError:
            peer.close()
            return
        with client, socket.create_connection(target) as server:
            back = threading.Thread(target=copy, args=(server, client), daemon=True)
            back.start()
            copy(client, server)
            back.join(SECONDS)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield Address("127.0.0.1", listener.getsockname()[1])
    finally:
        listener.close()


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_cluster() as running:
        yield running


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def trusting(authority: Authority, **more: Any) -> Security:
    return Security(is_tls=True, trust=Store(TRUST, str(authority.ca)), **more)


def connect(address: Address, given: Security) -> None:
    Connection(address, client_id="c", timeout_s=SECONDS, protection=Protection(given)).close()


def jaas(mechanism: str, login: str) -> Security:
    return security(
        {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.jaas.config": f"{MODULES}.{login} ;",
        }
    )


def test_over_tls_with_a_certificate_of_the_client(fake: Fake, authority: Authority) -> None:
    own = authority.issue("client", to="client")
    assert own.certificate is not None
    assert own.key is not None
    pem = own.key.read_text() + own.certificate.read_text()
    server = server_context(authority.issue("127.0.0.1"), "required")
    given = trusting(authority, keys=Store(KEYS, text=Secret(pem)))
    with tls_listener(server, fake.addresses()[0]) as address:
        connect(address, given)


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_without_a_certificate_where_one_is_needed(fake: Fake, authority: Authority, newest: ssl.TLSVersion) -> None:
    # with TLS 1.3 the refusal comes after the handshake, and may be lost with the connection
    server = server_context(authority.issue("127.0.0.1"), "required")
    server.maximum_version = newest
    with (
        tls_listener(server, fake.addresses()[0]) as address,
        pytest.raises(KafkaError, match=r"ask.? for (a )?certificate.*ee kafka.ssl.keystore.location"),
    ):
        connect(address, trusting(authority))


def test_a_certificate_of_an_authority_that_is_not_trusted(fake: Fake, authority: Authority, tmp_path: Path) -> None:
    server = server_context(Authority(tmp_path).issue("127.0.0.1"), "none")
    with (
        tls_listener(server, fake.addresses()[0]) as address,
        pytest.raises(LoginFailed, match=r"certificate of .* is not accepted: .*; see kafka.ssl.truststore.location"),
    ):
        connect(address, trusting(authority))


def test_the_name_is_checked_unless_it_is_not_to_be(fake: Fake, authority: Authority) -> None:
    server = server_context(authority.issue("elsewhere.example"), "none")
    with tls_listener(server, fake.addresses()[0]) as address, pytest.raises(LoginFailed, match="not accepted"):
        connect(address, trusting(authority))
    with tls_listener(server, fake.addresses()[0]) as address:
        connect(address, trusting(authority, checks_name=False))


def test_a_tls_port_spoken_to_in_the_clear_says_so_at_once(fake: Fake, authority: Authority) -> None:
    server = server_context(authority.issue("127.0.0.1"), "none")
    with tls_listener(server, fake.addresses()[0]) as address:
        cluster = KafkaCluster([address], client_id="c", request_timeout_s=SECONDS, patience_s=SECONDS)
        with cluster, pytest.raises(LoginFailed, match=r"is a TLS port: set kafka.security.protocol to SSL or SASL"):
            cluster.topics()


def test_tls_to_a_broker_s_port_in_the_clear_says_so(fake: Fake, authority: Authority) -> None:
    """A broker reads the handshake as a request of 352 MB, and closes the connection."""
    match = (
        r"ended the connection in the TLS handshake; if 127\.0\.0\.1:\d+ speaks no TLS: set kafka\.security\.protocol"
    )
    with pytest.raises(KafkaError, match=match):
        connect(parse_address(fake.bootstrap), trusting(authority))


def test_tls_to_a_port_in_the_clear_says_so(authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address("127.0.0.1", listener.getsockname()[1])

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1 << 16)
                peer.sendall(b"\0\0\0\x04abcd")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(LoginFailed, match="speaks no TLS"):
            connect(address, trusting(authority))
        thread.join(SECONDS)


@pytest.mark.parametrize(
    "given",
    [
        jaas("PLAIN", 'plain.PlainLoginModule required username="ann" password="s3cret"'),
        jaas("SCRAM-SHA-256", 'scram.ScramLoginModule required username="ann" password="s3cret"'),
    ],
    ids=["PLAIN", "SCRAM-SHA-256"],
)
def test_logging_in(given: Security) -> None:
    with fake_cluster(sasl=RULES) as fake, fake.cluster(security=given) as cluster:
        assert cluster.topics() == {}


def test_a_token_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0ken\n")
    given = Security(sasl=Sasl("OAUTHBEARER", {}, f"file://{tmp_path}/token"))
    with fake_cluster(sasl=RULES) as fake, fake.cluster(security=given) as cluster:
        assert cluster.topics() == {}
    missing = Security(sasl=Sasl("OAUTHBEARER", {}, f"file://{tmp_path}/none"))
    with (
        fake_cluster(sasl=RULES) as fake,
        fake.cluster(security=missing) as cluster,
        pytest.raises(LoginFailed, match=r"kafka.sasl.oauthbearer.token.endpoint.url: .*No such file"),
    ):
        cluster.topics()


def test_a_wrong_password_is_reported_at_once_and_not_shown() -> None:
    given = jaas("PLAIN", 'plain.PlainLoginModule required username="ann" password="wr0ng"')
    with fake_cluster(sasl=RULES) as fake, fake.cluster(patience_s=SECONDS, security=given) as cluster:
        with pytest.raises(LoginFailed, match=r"refused 'ann' .PLAIN.*check kafka.sasl.jaas.config") as raised:
            cluster.topics()
        assert "wr0ng" not in str(raised.value)


def test_a_listener_with_sasl_spoken_to_without_says_what_to_set() -> None:
    with (
        fake_cluster(sasl=RULES) as fake,
        fake.cluster(patience_s=0.1) as cluster,
        pytest.raises(KafkaError, match=r"a listener with SASL does this: set kafka.security.protocol"),
    ):
        cluster.topics()


def test_a_login_that_ends_soon_is_renewed_by_a_new_connection() -> None:
    given = jaas("PLAIN", 'plain.PlainLoginModule required username="ann" password="s3cret"')
    rules = SaslRules(users={"ann": "s3cret"}, max_reauth_ms=1)
    with fake_cluster(sasl=rules) as fake, fake.cluster(security=given) as cluster:
        assert [cluster.topics() for _ in range(3)] == [{}] * 3


def test_a_locked_key_names_its_option(authority: Authority) -> None:
    own = authority.issue("client", to="client")
    assert own.certificate is not None
    wrong = (
        own.certificate.read_text()
        + "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    given = trusting(authority, keys=Store(KEYS, text=Secret(wrong)), key_password=Secret("open"))
    with pytest.raises(OptionError, match=rf"^{KEYS}: the key is locked, and {KEY_PASSWORD} does not unlock it"):
        tls_context(given)


class _Issuer(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.dumps({"access_token": "t0ken", "expires_in": 60}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_token_of_an_endpoint() -> None:
    with HTTPServer(("127.0.0.1", 0), _Issuer) as issuer:
        threading.Thread(target=issuer.handle_request, daemon=True).start()
        options = {name: Secret(name) for name in ("clientId", "clientSecret", "extension_cluster")}
        given = token(Sasl("OAUTHBEARER", options, f"http://127.0.0.1:{issuer.server_port}/token"))
    assert given == ("t0ken", 60.0, {"cluster": "extension_cluster"})


def test_a_token_that_nobody_signed() -> None:
    claims = token(Sasl("OAUTHBEARER", {"unsecuredLoginStringClaim_sub": Secret("ann")})).token.split(".")[1]
    assert json.loads(urlsafe_b64decode(claims + "=="))["sub"] == "ann"
