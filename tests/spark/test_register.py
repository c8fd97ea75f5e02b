"""What the data source needs of a session before its first query."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import datasource, udf

from kproxy.spark import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


class _Numbers(datasource.SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def read(self, start: dict[str, int]) -> "tuple[Iterator[tuple[int]], dict[str, int]]":
        return iter([(start["at"],)]), {"at": start["at"] + 1}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> "Iterator[tuple[int]]":
        return iter([(at,) for at in range(start["at"], end["at"])])


class _NumberSource(datasource.DataSource):
    @classmethod
    def name(cls) -> str:
        return "kproxy-test-numbers"

    def schema(self) -> str:
        return "value int"

    def simpleStreamReader(self, schema: Any) -> Any:
        return _Numbers()


@pytest.mark.spark
def test_no_stream_adds_to_the_environment_that_all_sources_share(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An entry that Spark adds while another query's task is serialized damages that task.
    register(spark)
    wrapped: list[Any] = []
    wrap = udf._wrap_function

    def keep(*arguments: Any) -> Any:
        wrapped.append(wrap(*arguments))
        return wrapped[-1]

    with monkeypatch.context() as patched:
        patched.setattr(udf, "_wrap_function", keep)
        spark.dataSource.register(_NumberSource)
    [function] = wrapped
    before = set(function.envVars())
    rows = spark.readStream.format(_NumberSource.name()).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(once=True).start()
    assert query.awaitTermination(120)
    assert set(function.envVars()) == before


@pytest.mark.spark
def test_plans_and_the_web_ui_show_no_secret(spark: "SparkSession") -> None:
    options = {
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required u=a p=s3cret ;",
        "kafka.ssl.keystore.key": "-----BEGIN s3cret",
        "kafka.ssl.key.password": "s3cret",
        "subscribe": "orders",
    }
    name = "spark.sql.redaction.options.regex"
    before = spark.conf.get(name)
    try:
        spark.conf.set(name, "(?i)url")
        register(spark)
        assert spark._jvm is not None
        given = spark._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(options)
        shown = spark._jsparkSession.sessionState().conf().redactOptions(given).toString()
        assert "s3cret" not in shown
        assert "orders" in shown
        spark.conf.set(name, "mine")
        register(spark)
        assert spark.conf.get(name) == "mine"
    finally:
        spark.conf.set(name, before)


@pytest.mark.spark
@pytest.mark.parametrize("mode", [None, "append", "errorifexists", "overwrite"])
def test_a_write_without_a_mode_appends(spark: "SparkSession", mode: str | None) -> None:
    register(spark)
    write = spark.range(1).write.format("kproxy")
    # the sink is asked, and says what is wrong with its options; Spark itself would refuse the mode
    told = "overwrite is not possible" if mode == "overwrite" else "kafka.bootstrap.servers: is needed"
    with pytest.raises(PySparkException, match=told):
        (write if mode is None else write.mode(mode)).save()


@pytest.mark.spark
def test_other_formats_keep_their_mode(spark: "SparkSession", tmp_path: Path) -> None:
    register(spark)
    spark.range(1).write.format("json").save(str(tmp_path / "out"))
    with pytest.raises(AnalysisException, match="already exists"):
        spark.range(1).write.save(str(tmp_path / "out"), format="json")
