from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from kproxy.config import StartupError
from kproxy.spark.spark_session import spark_session


@pytest.mark.spark
def test_a_session_that_runs_is_joined_and_continues(spark: SparkSession) -> None:
    with spark_session("another", {"spark.executor.memory": "3g"}) as joined:
        assert joined is spark
    assert spark.range(3).count() == 3


@pytest.mark.spark
def test_an_error_is_raised_and_not_printed(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    with spark_session("another", {}) as joined:
        for wrong in (lambda: joined.range(1).select("nothing"), lambda: joined.sql("select nothing")):
            with pytest.raises(AnalysisException):
                wrong()
    assert "nothing" not in capfd.readouterr().err


def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(StartupError, match="Spark needs Java 17 or later"), spark_session("audit", {}):
        pass
