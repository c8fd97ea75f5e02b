"""Source and sink on a real Kafka with TLS, clients' certificates, and each mechanism of SASL; secrets stay hidden."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from cryptography.x509 import load_pem_x509_certificate
from pyspark.errors import PySparkException

from kproxy.net.tls_context import TlsFiles
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import PATIENT, RealKafka
from kproxy.testing.kafka_sasl import unsecured_token
from tests.net.certificates import Authority
from verification.copiers.processes import Kproxy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

MODULES = "org.apache.kafka.common.security"
PASSWORD = "s3cret-of-ann"
STORE_PASSWORD = "s3cret-of-store"
SECONDS = 120


class Place(NamedTuple):
    """A kproxy, and the listener of the broker that asks for the same of its clients."""

    kproxy: Kproxy
    socket: Path
    broker: str


class Stage(NamedTuple):
    spark: "SparkSession"
    authority: Authority
    kafka: RealKafka
    open_to_tls: Place
    asks_for_certificates: Place
    asks_for_logins: Place

    def place(self, login: str) -> Place:
        return {"TLS": self.open_to_tls, "mTLS": self.asks_for_certificates}.get(login, self.asks_for_logins)

    def secured(self, login: str) -> dict[str, str]:
        """Options of source and sink."""
        trust = {"kafka.ssl.truststore.location": str(self.authority.ca), "kafka.security.protocol": "SSL"}
        if login == "TLS":
            return trust
        if login == "mTLS":
            keys = key_store(self.authority)
            return trust | {"kafka.ssl.keystore.location": str(keys), "kafka.ssl.keystore.password": STORE_PASSWORD}
        sasl = trust | {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": login}
        if login == "OAUTHBEARER":
            token = self.authority.directory / "token"
            token.write_text(unsecured_token("ann"))
            return sasl | {"kafka.sasl.oauthbearer.token.endpoint.url": token.as_uri()}
        module = "plain.PlainLoginModule" if login == "PLAIN" else "scram.ScramLoginModule"
        jaas = f'{MODULES}.{module} required username="ann" password="{PASSWORD}";'
        return sasl | {"kafka.sasl.jaas.config": jaas}

    def topic(self) -> str:
        name = f"secured-{uuid4().hex[:8]}"
        with ClusterClient(self.kafka.bootstrap) as client:
            client.create_topic(name, 2)
        return name

    def sink(self, login: str, topic: str) -> dict[str, str]:
        place = self.place(login)
        return {
            **self.secured(login),
            "kafka.bootstrap.servers": place.kproxy.bootstrap,
            "kproxy.control.socket": str(place.socket),
            "transactional.id": f"id-{topic}",
            "topic": topic,
        }

    def read(self, login: str, bootstrap: str, topic: str) -> list[str]:
        source = {**self.secured(login), "kafka.bootstrap.servers": bootstrap, "subscribe": topic}
        rows = self.spark.read.format("kproxy").options(**source).load()
        return sorted(row.value for row in rows.selectExpr("string(value) as value").collect())


def key_store(authority: Authority) -> Path:
    """The client's key and certificate as PKCS12, locked."""
    own = authority.issue("ann", to="ann")
    assert own.certificate is not None
    assert own.key is not None
    private: Any = load_pem_private_key(own.key.read_bytes(), None)
    certificate = load_pem_x509_certificate(own.certificate.read_bytes())
    lock = BestAvailableEncryption(STORE_PASSWORD.encode())
    path = authority.directory / "ann.p12"
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"ann", private, certificate, None, lock))
    return path


def broker_settings(authority: Authority) -> dict[str, str]:
    files = authority.issue("127.0.0.1", to="broker")
    assert files.certificate is not None
    assert files.key is not None
    keys = authority.directory / "broker.pem"
    keys.write_bytes(files.key.read_bytes() + files.certificate.read_bytes())
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
        "ssl.client.auth": "required",
    }


def tls_flags(side: str, files: TlsFiles) -> list[str]:
    return [
        *(f"--{side}ssl-certificate-location", str(files.certificate)),
        *(f"--{side}ssl-key-location", str(files.key)),
        *(f"--{side}ssl-ca-location", str(files.ca)),
    ]


@pytest.fixture(scope="module")
def stage(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority(directory)
    front, back = authority.issue("127.0.0.1", to="front"), authority.issue("kproxy", to="back")
    password = directory / "password"
    password.write_text("s3cret-of-kproxy")
    by_certificate = ["--upstream-security-protocol", "ssl", *tls_flags("upstream-", back)]
    by_login = [
        *("--upstream-security-protocol", "sasl_ssl", "--upstream-ssl-ca-location", str(authority.ca)),
        *("--upstream-sasl-mechanism", "SCRAM-SHA-512", "--upstream-sasl-username", "kproxy"),
        *("--upstream-sasl-password-location", str(password), "--upstream-sasl-identity", "client"),
    ]

    @contextmanager
    def place(name: str, broker: str, *flags: str) -> Iterator[Place]:
        socket = directory / f"{name}.sock"
        options = [*tls_flags("", front), *flags, "--control-socket", str(socket)]
        with Kproxy(f"secured-{name}", broker, directory, *options) as running:
            running.wait_ready()
            yield Place(running, socket, broker)
            assert running.bugs() == []

    users = {"ann": PASSWORD, "kproxy": "s3cret-of-kproxy"}
    with (
        RealKafka(ssl=broker_settings(authority), sasl=users, config=PATIENT) as kafka,
        place("tls", kafka.ssl_bootstrap, *by_certificate) as open_to_tls,
        place("mtls", kafka.ssl_bootstrap, *by_certificate, "--ssl-client-auth", "required") as asks_for_certificates,
        place("sasl", kafka.sasl_bootstrap, *by_login) as asks_for_logins,
    ):
        yield Stage(spark, authority, kafka, open_to_tls, asks_for_certificates, asks_for_logins)


@pytest.mark.parametrize("login", ["TLS", "mTLS", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_what_the_sink_writes_the_source_reads_from_kproxy_and_from_the_broker(stage: Stage, login: str) -> None:
    topic, place = stage.topic(), stage.place(login)
    rows = stage.spark.sql("select cast(id as string) value from range(100)")
    rows.write.format("kproxy").options(**stage.sink(login, topic)).save()
    expected = sorted(str(number) for number in range(100))
    assert stage.read(login, place.kproxy.bootstrap, topic) == expected
    if login != "TLS":  # the broker's listener without logins asks for a certificate
        assert stage.read(login, place.broker, topic) == expected


@contextmanager
def spark_log(spark: "SparkSession", path: Path) -> Iterator[None]:
    """Writes what the driver's Spark logs, at INFO and above, to a file."""
    jvm: Any = spark._jvm
    core = jvm.org.apache.logging.log4j.core
    builder = core.appender.FileAppender.newBuilder()
    builder.setName("secrets")
    builder.withFileName(str(path))
    builder.setLayout(core.layout.PatternLayout.createDefaultLayout())
    appender = builder.build()
    appender.start()
    root = jvm.org.apache.logging.log4j.LogManager.getRootLogger()
    root.addAppender(appender)
    spark.sparkContext.setLogLevel("INFO")
    try:
        yield
    finally:
        spark.sparkContext.setLogLevel("ERROR")
        root.removeAppender(appender)
        appender.stop()


def pages(spark: "SparkSession") -> str:
    """What the web UI shows of queries."""
    shared: Any = spark._jsparkSession.sharedState()
    jvm: Any = spark._jvm
    executions = jvm.scala.jdk.javaapi.CollectionConverters.asJava(shared.statusStore().executionsList())
    return "".join(f"{each.description()}{each.details()}{each.physicalPlanDescription()}" for each in executions)


def test_a_stream_with_logins_whose_secrets_no_plan_page_or_log_shows(stage: Stage, tmp_path: Path) -> None:
    source, target, place = stage.topic(), stage.topic(), stage.asks_for_logins
    rows = stage.spark.sql("select cast(id as string) value from range(100)")
    rows.write.format("kproxy").options(**stage.sink("PLAIN", source)).save()
    log = tmp_path / "spark.log"
    with spark_log(stage.spark, log):
        reads = {**stage.secured("SCRAM-SHA-512"), "kafka.bootstrap.servers": place.broker, "subscribe": source}
        loaded = stage.spark.readStream.format("kproxy").options(**reads, startingOffsets="earliest").load()
        written = loaded.select("value").writeStream.format("kproxy").options(**stage.sink("SCRAM-SHA-256", target))
        query = written.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        assert query.awaitTermination(SECONDS)
        mutual = {**stage.secured("mTLS"), "kafka.bootstrap.servers": stage.kafka.ssl_bootstrap, "subscribe": target}
        table = stage.spark.read.format("kproxy").options(**mutual).load()
        assert table.count() == 100
    shown = {
        "log": log.read_text(),
        "page": pages(stage.spark),
        "progress": str(query.lastProgress),
        "plan of the stream": str(query._jsq.explainInternal(True)),
        "plan of the table": str(table._jdf.queryExecution().toString()),
        "checkpoint": "".join(path.read_text("latin-1") for path in (tmp_path / "c").rglob("*") if path.is_file()),
    }
    assert str(query.id) in shown["log"]
    for secret in (PASSWORD, STORE_PASSWORD):
        assert [name for name, text in shown.items() if secret in text] == []


def test_a_wrong_password_is_refused_and_not_shown(stage: Stage) -> None:
    wrong = {name: value.replace(PASSWORD, "wr0ng") for name, value in stage.secured("SCRAM-SHA-512").items()}
    for bootstrap in (stage.asks_for_logins.kproxy.bootstrap, stage.asks_for_logins.broker):
        source = {**wrong, "kafka.bootstrap.servers": bootstrap, "subscribe": "any"}
        with pytest.raises(
            PySparkException, match=r"refused 'ann' .SCRAM-SHA-512.*check kafka.sasl.jaas.config"
        ) as one:
            stage.spark.read.format("kproxy").options(**source).load().count()
        assert "wr0ng" not in str(one.value)
    sink = stage.sink("SCRAM-SHA-512", "any") | wrong
    with pytest.raises(
        PySparkException, match=r"kafka.bootstrap.servers .*refused 'ann'.*check kafka.sasl.jaas.config"
    ) as two:
        stage.spark.range(1).selectExpr("string(id) value").write.format("kproxy").options(**sink).save()
    assert "wr0ng" not in str(two.value)


def test_a_client_without_a_certificate_where_one_is_needed(stage: Stage) -> None:
    for bootstrap in (stage.asks_for_certificates.kproxy.bootstrap, stage.asks_for_certificates.broker):
        source = {**stage.secured("TLS"), "kafka.bootstrap.servers": bootstrap, "subscribe": "any"}
        with pytest.raises(PySparkException, match=r"kafka\.ssl\.keystore"):
            stage.spark.read.format("kproxy").options(**source).load().count()


@pytest.mark.parametrize("at", ["kproxy", "broker"])
def test_a_tls_port_spoken_to_in_the_clear(stage: Stage, at: str) -> None:
    place = stage.asks_for_logins
    bootstrap = place.kproxy.bootstrap if at == "kproxy" else place.broker
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": "any"}
    with pytest.raises(PySparkException, match=r"is a TLS port: set kafka\.security\.protocol"):
        stage.spark.read.format("kproxy").options(**source).load().count()
