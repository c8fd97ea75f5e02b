"""Where Spark reports a fault of a query, and what its user reads first: one sentence with the cause and what to do."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.functions import udf

from kproxy.client import ControlClient
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.spark import Upsert
from kproxy.spark.spark_errors import OptionError
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.fake_broker import Edit
from kproxy.testing.kafka import RealKafka
from tests.spark.fake_cluster import Fake, fake_cluster
from verification.copiers.processes import Kproxy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kproxy.codec._generated.metadata import MetadataResponse

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
SECONDS: Final = 300
NOWHERE = "127.0.0.1:1"
#: So long the sink waits for a kproxy that is not there.
SHORT = {"kproxy.retry.timeout.ms": "200"}
NUMBERS = "string(value) as value"


@dataclass
class Stage:
    spark: "SparkSession"
    kproxy: Kproxy
    kafka: RealKafka
    directory: Path
    numbers: Iterator[int]

    @property
    def socket(self) -> Path:
        return self.directory / "control.sock"

    def sink(self, **changes: str | None) -> dict[str, str]:
        """Options of the sink; ``__`` in a name is a dot, and None leaves an option out."""
        given = {
            "kafka.bootstrap.servers": self.kproxy.bootstrap,
            "kproxy.control.socket": str(self.socket),
            "transactional.id": f"errors-{next(self.numbers)}",
            "topic": "errors-out",
            **{name.replace("__", "."): value for name, value in changes.items()},
        }
        return {name: value for name, value in given.items() if value is not None}

    def rate(self) -> "DataFrame":
        return self.spark.readStream.format("rate").option("rowsPerSecond", 10).load()

    def read(self, **changes: str) -> "DataFrame":
        given = {"kafka.bootstrap.servers": self.kproxy.bootstrap, "subscribe": "errors-in", **changes}
        return self.spark.readStream.format("kproxy").options(**given).load().selectExpr(NUMBERS)

    def start(self, rows: "DataFrame", options: dict[str, str], mode: str = "append") -> "StreamingQuery":
        checkpoint = str(self.directory / f"checkpoint-{next(self.numbers)}")
        writer = rows.writeStream.format("kproxy").options(**options).outputMode(mode)
        return writer.option("checkpointLocation", checkpoint).start()

    def first_line(self, query: "StreamingQuery") -> str:
        """What the error of a query begins with."""
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(SECONDS)
        return first_line(query.exception())


def first_line(error: Exception | None) -> str:
    text = str(error)
    assert "Traceback" not in text
    return text.splitlines()[0]


@pytest.fixture(scope="module")
def stage(spark: "SparkSession", kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("errors")
    with ClusterClient(kafka.bootstrap) as client:
        for topic in ("errors-in", "errors-out"):
            client.create_topic(topic, 1)
    socket = str(directory / "control.sock")
    options = ("--control-socket", socket, "--transactions-home", "auto")
    with Kproxy("errors", kafka.bootstrap, directory, *options) as kproxy:
        kproxy.wait_ready()
        yield Stage(spark, kproxy, kafka, directory, count())
        assert kproxy.bugs() == []


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_cluster() as running:
        with running.client() as client:
            client.create_topic("errors-in", 1)
        yield running


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"transactional.idd": "x"}, r"transactional\.idd: no option of the sink; did you mean 'transactional\.id'\?"),
        ({"transaction.timeout.ms": "15m"}, "transaction.timeout.ms: '15m' must be a whole number of milliseconds"),
        ({"kafka.acks": "1"}, r"kafka\.acks: the sink sets it"),
        ({"topic": None}, "topic: name the topic by this option, or have a column topic"),
        ({"topic": "errors-uot"}, "topic 'errors-uot' does not exist: create it, or set"),
        ({"kafka.bootstrap.servers": NOWHERE, **SHORT}, "kafka.*cannot connect to .*; is kproxy, or a broker, running"),
        ({"kproxy.control.socket": "/none", **SHORT}, ".*no answer from kproxy at /none: there is no such socket"),
        ({"kafka.security.protocol": "SSL", **SHORT}, ".* speaks no TLS: set kafka.security.protocol to PLAINTEXT"),
    ],
)
def test_start_refuses_a_sink_that_can_not_work(stage: Stage, changes: dict[str, str | None], reason: str) -> None:
    with pytest.raises(StreamingQueryException) as refused:
        stage.start(stage.rate().selectExpr(NUMBERS), stage.sink(**changes))
    assert re.match(reason, str(refused.value))
    assert "\n" not in str(refused.value)


def test_start_refuses_a_stream_without_a_name(stage: Stage) -> None:
    name = "spark.sql.streaming.checkpointLocation"  # a sink in Python does not learn of this one
    stage.spark.conf.set(name, str(stage.directory / "default"))
    try:
        writer = stage.rate().selectExpr(NUMBERS).writeStream
        with pytest.raises(StreamingQueryException, match=r"^transactional\.id: is needed, .* or checkpointLocation"):
            writer.start(format="kproxy", queryName="nameless", **stage.sink(transactional__id=None))
    finally:
        stage.spark.conf.unset(name)


def test_start_refuses_columns_and_modes_that_can_not_be_written(stage: Stage) -> None:
    with pytest.raises(StreamingQueryException, match=r"^column value: is bigint and must be string or binary$"):
        stage.start(stage.rate(), stage.sink())
    counts = stage.rate().groupBy("value").count().selectExpr(NUMBERS)
    for mode in ("complete", "update"):
        with pytest.raises(StreamingQueryException, match=rf"^outputMode: {mode} .* kproxy\.spark\.Upsert"):
            stage.start(counts, stage.sink(), mode)


def test_start_refuses_a_broker_in_place_of_kproxy_and_fences_nobody(stage: Stage) -> None:
    options = stage.sink(kafka__bootstrap__servers=stage.kafka.bootstrap)
    control = ControlClient(stage.socket)
    owner = control.initialize(options["transactional.id"]).owner
    with pytest.raises(StreamingQueryException, match=r"^kafka.* is not the kproxy whose .* Set it to the address of"):
        stage.start(stage.rate().selectExpr(NUMBERS), options)
    assert control.describe(options["transactional.id"]).owner == owner


def test_streams_to_other_formats_start_as_ever(stage: Stage) -> None:
    query = stage.rate().writeStream.format("noop").trigger(availableNow=True)
    started = query.start(checkpointLocation=str(stage.directory / "noop"))
    started.stop()
    assert started.exception() is None


@pytest.mark.parametrize(
    ("columns", "changes", "reason"),
    [
        ((NUMBERS, "'errors-uot' topic"), {"topic": None}, "topic 'errors-uot' does not exist: create it, or set"),
        (
            ("repeat('x', 3000000) value",),
            {},
            r"not written: .* bytes, and kafka\.max\.request\.size is \d+: raise that",
        ),
    ],
)
def test_a_failing_task(stage: Stage, columns: tuple[str, ...], changes: dict[str, str | None], reason: str) -> None:
    query = stage.start(stage.rate().selectExpr(*columns), stage.sink(**changes))
    assert re.search(f"KafkaError: .*{reason}", stage.first_line(query))


def test_a_query_whose_id_is_taken(stage: Stage) -> None:
    options = stage.sink()
    query = stage.start(stage.rate().selectExpr(NUMBERS), options)
    while query.lastProgress is None:
        assert query.isActive, query.exception()
    ControlClient(stage.socket).initialize(options["transactional.id"])
    assert re.search("Fenced: another driver .* give each an id of its own$", stage.first_line(query))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is for read, and a stream does not end: leave it out"),
        ({"kafka.bootstrap.servers": NOWHERE, "kafkaConsumer.pollTimeoutMs": "200"}, "is kproxy, or a broker, running"),
        ({"assign": '{"errors-ni": [0]}'}, "topic 'errors-ni' does not exist: create it, or correct assign"),
    ],
)
def test_a_stream_that_can_not_be_read(stage: Stage, changes: dict[str, str], reason: str) -> None:
    given = {"kafka.bootstrap.servers": stage.kproxy.bootstrap, **changes}
    if "assign" not in given:
        given["subscribe"] = "errors-in"
    rows = stage.spark.readStream.format("kproxy").options(**given).load().selectExpr(NUMBERS)
    assert reason in stage.first_line(stage.start(rows, stage.sink()))


def test_a_stream_with_other_columns(stage: Stage) -> None:
    given = {"kafka.bootstrap.servers": stage.kproxy.bootstrap, "subscribe": "errors-in"}
    rows = stage.spark.readStream.format("kproxy").schema("value string").options(**given).load()
    assert "the columns are fixed; leave schema(...) out" in stage.first_line(stage.start(rows, stage.sink()))


def test_a_missing_right(stage: Stage, fake: Fake) -> None:
    def refuse(response: "MetadataResponse") -> None:
        for topic in response.topics:
            topic.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    fake.on(ApiKey.METADATA, lambda _: Edit(refuse))
    query = stage.start(stage.read(**{"kafka.bootstrap.servers": fake.bootstrap}), stage.sink())
    reason = "TOPIC_AUTHORIZATION_FAILED: give this query's principal Describe, and Read or Write, on the topic"
    assert reason in stage.first_line(query)


@pytest.mark.parametrize("stream", [False, True])
def test_load_refuses_options(stage: Stage, stream: bool) -> None:
    read = stage.spark.readStream if stream else stage.spark.read
    with pytest.raises(PySparkException) as refused:
        read.format("kproxy").option("subscripe", "x").load()
    assert "unknown option 'subscripe' of the source; did you mean 'subscribe'?" in first_line(refused.value)


def test_tables(stage: Stage) -> None:
    def save() -> None:
        rows = stage.spark.range(1).selectExpr("string(id) as value")
        rows.write.format("kproxy").options(**stage.sink(topic="errors-uot")).save()

    def read() -> None:
        source = {"kafka.bootstrap.servers": stage.kproxy.bootstrap, "subscribe": "errors-ni"}
        stage.spark.read.format("kproxy").options(**source).load().count()

    attempts: list[tuple[Callable[[], None], str]] = [(save, "'errors-uot' does not"), (read, "'errors-ni' does not")]
    for attempt, reason in attempts:
        with pytest.raises(PySparkException) as refused:
            attempt()
        assert reason in first_line(refused.value)


def test_the_users_own_error_keeps_its_stack(stage: Stage) -> None:
    divide = udf(lambda value: str(value // 0), "string")
    query = stage.start(stage.rate().select(divide("value").alias("value")), stage.sink())
    with pytest.raises(StreamingQueryException, match=r"(?s)Traceback.*test_spark_errors.*ZeroDivisionError"):
        query.awaitTermination(SECONDS)


def test_upsert(stage: Stage) -> None:
    with pytest.raises(OptionError, match=r"transactional\.idd: no option of the sink"):
        Upsert(stage.sink(transactional__idd="x"))
    writer = stage.rate().selectExpr(NUMBERS).writeStream.foreachBatch(Upsert(stage.sink(topic="errors-uot")))
    query = writer.option("checkpointLocation", str(stage.directory / "upsert")).start()
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(SECONDS)
    # PySpark reports the stack of a function of foreachBatch, and this is the last of it.
    frames, _, rest = str(query.exception()).partition("topic 'errors-uot' does not exist: create it")
    assert rest
    assert frames.count("  File ") == 4


def test_the_docs_show_what_is_printed(stage: Stage) -> None:
    [shown] = re.findall(r"print\(query\.exception\(\)\)\n```\n\n```text\n(.*?)\n\.\.\.\n```", PAGE.read_text(), re.S)
    query = stage.start(stage.read(subscribe="ordres"), stage.sink())
    assert stage.first_line(query)
    assert str(query.exception()).startswith(shown)
