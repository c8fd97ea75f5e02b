"""A real broker that asks for SASL: kproxy logs in for clients that know none, or lets theirs through."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kproxy.testing.kafka import RealKafka
from kproxy.testing.kafka_sasl import unsecured_token
from kproxy.testing.ports import free_ports
from tests.interop.proxy import KproxyProcess
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.kafka

OLD = {"api.version.request": "false", "broker.version.fallback": "0.9.0.1"}
BOB = {"security.protocol": "sasl_plaintext", "sasl.username": "bob", "sasl.password": "bobs"}
#: A login of a client that can't renew it ends its connection, too.
LIFETIME_MS = 5000


@pytest.fixture(scope="module")
def broker() -> Iterator[RealKafka]:
    with RealKafka(
        sasl={"alice": "secret", "bob": "bobs"}, config={"connections.max.reauth.ms": str(LIFETIME_MS)}
    ) as cluster:
        yield cluster


def flags(secret: Path, mechanism: str, *more: str) -> list[str]:
    flag = "--upstream-sasl-oauthbearer-token-location" if mechanism == "OAUTHBEARER" else None
    return [
        *("--upstream-security-protocol", "sasl_plaintext", "--upstream-sasl-mechanism", mechanism),
        *((flag,) if flag else ("--upstream-sasl-username", "alice", "--upstream-sasl-password-location")),
        str(secret),
        *more,
    ]


def write_and_read(bootstrap: str, topic: str, *, count: int = 1000, **settings: str) -> None:
    """Produces, a thousand records over longer than a login lasts; all must be there, in order and once."""
    given = {"bootstrap.servers": bootstrap, "log_level": "0", **settings}
    producer = Producer({**given, "linger.ms": "1"})
    errors: list[object] = []
    for number in range(count):
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: errors.append(error))
        producer.poll(1.5 * LIFETIME_MS / 1000 / 1000)
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None] * count
    consumer = Consumer({**given, "group.id": topic, "enable.auto.commit": "false"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [row.value() for row in consumer.consume(count, PATIENCE_S)] == [b"%d" % number for number in range(count)]
    consumer.close()


@pytest.mark.parametrize(
    ("mechanism", "count"), [("SCRAM-SHA-256", 1000), ("SCRAM-SHA-512", 10), ("PLAIN", 10), ("OAUTHBEARER", 1000)]
)
def test_a_client_of_0_9_at_a_broker_that_asks_for_a_login_again_and_again(
    broker: RealKafka, tmp_path: Path, mechanism: str, count: int
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(unsecured_token("alice") if mechanism == "OAUTHBEARER" else "secret")
    with KproxyProcess(broker.sasl_bootstrap, tmp_path / "log", *flags(secret, mechanism)) as proxy:
        write_and_read(proxy.bootstrap, f"login-{mechanism}", count=count, **OLD)
        page = proxy.metrics()
    assert "kproxy_batches_stamped_total 0.0" not in page
    assert 'kproxy_upstream_errors_total{kind="authentication"} 0.0' in page


def test_clients_log_in_themselves_and_others_are_not_served(broker: RealKafka, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    options = flags(secret, "SCRAM-SHA-256", "--upstream-sasl-identity", "client")
    with KproxyProcess(broker.sasl_bootstrap, tmp_path / "log", *options) as proxy:
        old = {"api.version.request": "false", "broker.version.fallback": "0.10.0.1", "sasl.mechanism": "PLAIN"}
        write_and_read(proxy.bootstrap, "own-plain", **BOB, **old)
        write_and_read(proxy.bootstrap, "own-scram", count=10, **BOB, **{"sasl.mechanism": "SCRAM-SHA-512"})
        for settings in ({}, {**BOB, "sasl.mechanism": "PLAIN", "sasl.password": "wrong"}):
            nobody = Producer({"bootstrap.servers": proxy.bootstrap, "log_level": "0", **settings})
            with pytest.raises(KafkaException):
                nobody.list_topics(timeout=3)


def test_a_wrong_password_is_reported_in_one_line(broker: RealKafka, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mistaken")
    (listen,) = free_ports(1)
    command = [sys.executable, "-m", "kproxy", "run", "--bootstrap-servers", broker.sasl_bootstrap, "--http", "off"]
    command += ["--listen", f"127.0.0.1:{listen}", "--log-level", "warning", *flags(secret, "SCRAM-SHA-256")]
    with subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
        rest = process.stdout.read()
    assert "the broker refused 'alice' (SCRAM-SHA-256): Authentication failed" in line
    assert "check upstream.sasl.username and upstream.sasl.password.location" in line
    assert "mistaken" not in line + rest
    assert not rest
