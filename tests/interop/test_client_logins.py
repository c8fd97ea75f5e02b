"""Released clients log in at kproxy: each mechanism, old clients' bare tokens, and what is refused."""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from kproxy.net.client_login.credential_file import write_credentials
from kproxy.proxy.client_login.client_mechanisms import MECHANISMS
from kproxy.proxy.client_login.stored_credentials import SCRAM_HASHES, Credentials, make_verifier
from kproxy.testing.kafka import RealKafka
from tests.interop import records, session
from tests.interop.catalog import CLIENTS
from tests.interop.proxy import KproxyProcess
from tests.net.client_login.issuer import Issuer
from tests.support.clients import run_driver
from tests.support.patience import PATIENCE_S, eventually

pytestmark = [pytest.mark.kafka, pytest.mark.java]

PASSWORD = "correct horse, battery=staple"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_BY_NAME = {client.name: client for client in CLIENTS}


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer("key-1")


@pytest.fixture(scope="module")
def proxy(kafka: RealKafka, issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KproxyProcess]:
    """kproxy with all mechanisms, and a user called alice."""
    place = tmp_path_factory.mktemp("logins")
    made = {("alice", each): make_verifier(each, PASSWORD, b"s" * 16, 4096) for each in SCRAM_HASHES}
    write_credentials(place / "users", Credentials(b"d" * 32, made))
    options = {
        "--sasl-enabled-mechanisms": ",".join(MECHANISMS),
        "--sasl-credentials-location": str(place / "users"),
        "--sasl-oauthbearer-jwks-endpoint-url": issuer.write(place / "keys"),
        "--sasl-oauthbearer-expected-audience": "kafka",
        "--connections-max-reauth-ms": "3000",
    }
    flags = [word for pair in options.items() for word in pair]
    with KproxyProcess(kafka.bootstrap, place / "log", *flags) as running:
        yield running
        running.check()


def logins(proxy: KproxyProcess, mechanism: str, result: str) -> float:
    """What kproxy has counted."""
    wanted = f'kproxy_client_logins_total{{mechanism="{mechanism}",result="{result}"}}'
    lines = [line for line in proxy.metrics().splitlines() if line.startswith(wanted)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def jaas(module: str, password: str) -> str:
    return f'{module} required username="alice" password="{password}";'


def java(mechanism: str, module: str) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas(module, PASSWORD),
    }


def python(mechanism: str) -> dict[str, Any]:
    names = ("security_protocol", "sasl_mechanism", "sasl_plain_username", "sasl_plain_password")
    return dict(zip(names, ("SASL_PLAINTEXT", mechanism, "alice", PASSWORD), strict=True))


def librdkafka(mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


@pytest.mark.parametrize(
    ("name", "mechanism", "login"),
    [
        ("java-0.10.2.2", "PLAIN", java("PLAIN", PLAIN_MODULE)),
        ("java-2.0.1", "SCRAM-SHA-256", java("SCRAM-SHA-256", SCRAM_MODULE)),
        ("java-4.4.0", "SCRAM-SHA-512", java("SCRAM-SHA-512", SCRAM_MODULE)),
        ("kafka-python-1.4.7-pinned-0.10", "PLAIN", python("PLAIN")),
        ("kafka-python-2.0.2-pinned-0.10.1", "SCRAM-SHA-512", python("SCRAM-SHA-512")),
        ("kafka-python-3.0.12", "SCRAM-SHA-256", python("SCRAM-SHA-256")),
        ("librdkafka-2.0.2-fallback-0.9.0.1", "PLAIN", {**librdkafka("PLAIN"), "broker.version.fallback": "0.10.0.0"}),
        ("librdkafka-2.16.1", "SCRAM-SHA-512", librdkafka("SCRAM-SHA-512")),
    ],
)
def test_a_released_client_writes_and_reads(
    name: str, mechanism: str, login: dict[str, Any], kafka: RealKafka, proxy: KproxyProcess
) -> None:
    client, topic = _BY_NAME[name], f"logins.{name}"
    session.create_topics(kafka.bootstrap, [topic])
    before = logins(proxy, mechanism, "accepted")
    sent = records.make(name, "none", client.can, session.now_ms() - 60_000)
    options = {key: {**client.options.get(key, {}), **login} for key in ("producer", "consumer")}
    steps = [session.produce_step(topic, "none", sent), session.consume_step(topic, f"group.{topic}", len(sent))]
    written, read = run_driver(client.install(), session.job(proxy.bootstrap, {**client.options, **options}, steps))
    assert "error" not in written, written
    assert "error" not in read, read
    assert len(read["records"]) == len(sent)
    assert logins(proxy, mechanism, "accepted") >= before + 2


def test_a_token_lets_in_and_is_renewed(kafka: RealKafka, proxy: KproxyProcess, issuer: Issuer) -> None:
    session.create_topics(kafka.bootstrap, ["logins.bearer"])
    settings = bearer(proxy, lambda: issuer.token("key-1", sub="alice"))
    producer, errors = Producer(settings), []
    numbers = itertools.count()

    def write() -> None:
        value = b"%d" % next(numbers)
        producer.produce("logins.bearer", value, partition=0, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(PATIENCE_S) == 0

    eventually(lambda: logins(proxy, "OAUTHBEARER", "renewed"), write)
    sent = next(numbers)
    assert errors == [None] * sent
    consumer = Consumer({**settings, "group.id": "bearer"})
    consumer.assign([TopicPartition("logins.bearer", 0, 0)])
    assert len(consumer.consume(sent, PATIENCE_S)) == sent
    consumer.close()


def bearer(proxy: KproxyProcess, token: Callable[[], str]) -> dict[str, Any]:
    return {
        "bootstrap.servers": proxy.bootstrap,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token(), time.time() + 3600),
        "log_level": 0,
    }


def refused(settings: dict[str, Any]) -> str:
    """Why a client is not let in, as it tells its application."""
    told: list[KafkaError] = []
    producer = Producer({**settings, "error_cb": told.append})
    eventually(
        lambda: any(error.code() == KafkaError._AUTHENTICATION for error in told),
        lambda: producer.poll(0.1),
        lambda: told,
    )
    return str(next(error for error in told if error.code() == KafkaError._AUTHENTICATION))


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM_HASHES])
def test_a_wrong_password_is_refused_and_counted(mechanism: str, proxy: KproxyProcess) -> None:
    settings = {"bootstrap.servers": proxy.bootstrap, "log_level": 0, **librdkafka(mechanism, "wrong")}
    assert f"Authentication by {mechanism} failed: wrong name or password" in refused(settings)
    assert logins(proxy, mechanism, "refused") >= 1


@pytest.mark.parametrize("claims", [{"exp": 1_000_000_000}, {"aud": "billing"}, {"nbf": 4_000_000_000}], ids=str)
def test_a_token_that_will_not_do_is_refused_and_counted(
    claims: dict[str, Any], proxy: KproxyProcess, issuer: Issuer
) -> None:
    before = logins(proxy, "OAUTHBEARER", "refused")
    assert "the token is not accepted" in refused(bearer(proxy, lambda: issuer.token("key-1", **claims)))
    assert logins(proxy, "OAUTHBEARER", "refused") > before


def test_a_client_that_does_not_log_in_is_not_served(proxy: KproxyProcess) -> None:
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "log_level": 0})
    producer.produce("logins.nobody", b"x")
    eventually(lambda: 'kproxy_refusals_total{reason="unauthenticated"}' in proxy.metrics(), lambda: producer.poll(0.1))
    producer.purge()


def test_no_password_is_in_the_log(proxy: KproxyProcess) -> None:
    text = proxy.log()
    assert "login refused" in text
    assert PASSWORD not in text
    assert "wrong'" not in text
