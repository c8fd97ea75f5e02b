"""TLS on both sides, with released clients and a real broker that asks for a certificate."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kproxy.net.tls_context import TlsFiles
from kproxy.testing.kafka import RealKafka
from tests.interop.proxy import KproxyProcess
from tests.net.certificates import Authority
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.kafka

RECORDS = 2_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[RealKafka]:
    """A broker whose TLS listener takes nobody without a certificate."""
    files = authority.issue("127.0.0.1", to="broker")
    assert files.certificate is not None
    assert files.key is not None
    keystore = authority.directory / "broker.pem"
    keystore.write_bytes(files.key.read_bytes() + files.certificate.read_bytes())
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
        "ssl.client.auth": "required",
    }
    with RealKafka(ssl=settings) as cluster:
        yield cluster


def flags(files: TlsFiles, upstream: TlsFiles, *more: str) -> list[str]:
    return [
        *("--ssl-certificate-location", str(files.certificate), "--ssl-key-location", str(files.key)),
        *("--upstream-security-protocol", "ssl", "--upstream-ssl-ca-location", str(upstream.ca)),
        *("--upstream-ssl-certificate-location", str(upstream.certificate)),
        *("--upstream-ssl-key-location", str(upstream.key)),
        *more,
    ]


def settings(proxy: KproxyProcess, ca: Path, **more: str) -> dict[str, str]:
    return {
        "bootstrap.servers": proxy.bootstrap,
        "security.protocol": "ssl",
        "ssl.ca.location": str(ca),
        "log_level": "0",
        **more,
    }


def test_an_old_producer_and_a_consumer_over_tls_and_a_broker_that_wants_a_certificate(
    authority: Authority, broker: RealKafka, tmp_path: Path
) -> None:
    files, mine = authority.issue("127.0.0.1", to="front"), authority.issue("kproxy", to="back")
    with KproxyProcess(broker.ssl_bootstrap, tmp_path / "log", *flags(files, mine)) as proxy:
        old = {"api.version.request": "false", "broker.version.fallback": "0.9.0.1"}
        producer = Producer(settings(proxy, authority.ca, **old))
        errors: list[object] = []
        for number in range(RECORDS):
            producer.produce("tls", b"%d" % number, on_delivery=lambda error, _: errors.append(error))
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0
        assert errors == [None] * RECORDS
        consumer = Consumer(settings(proxy, authority.ca, **{"group.id": "tls", "enable.auto.commit": "false"}))
        consumer.assign([TopicPartition("tls", 0, 0)])
        got = [row.value() for row in consumer.consume(RECORDS, PATIENCE_S)]
        consumer.close()
        assert got == [b"%d" % number for number in range(RECORDS)]


def test_clients_that_are_nobody_or_trust_somebody_else_get_nowhere(
    authority: Authority, broker: RealKafka, tmp_path: Path
) -> None:
    files, mine = authority.issue("127.0.0.1", to="front"), authority.issue("kproxy", to="back")
    strict = flags(files, mine, "--ssl-client-auth", "required", "--ssl-ca-location", str(authority.ca))
    with KproxyProcess(broker.ssl_bootstrap, tmp_path / "log", *strict) as proxy:
        someone = authority.issue("someone", to="someone")
        known = {"ssl.certificate.location": str(someone.certificate), "ssl.key.location": str(someone.key)}
        assert (
            "tls"
            in Consumer(settings(proxy, authority.ca, **known, **{"group.id": "x"}))
            .list_topics(timeout=PATIENCE_S)
            .topics
        )
        for client in (
            settings(proxy, authority.ca),
            settings(proxy, Authority(tmp_path).ca, **known),
            {"bootstrap.servers": proxy.bootstrap, "log_level": "0"},
        ):
            with pytest.raises(KafkaException):
                Producer(client).list_topics(timeout=3)
