"""Spark takes its settings from the home, and its workers the installed PySpark."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kproxy.testing.spark_home import make_spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_it_is_made_once(tmp_path: Path) -> None:
    home = make_spark_home(tmp_path / "home")
    assert (home / "bin" / "spark-submit").exists()
    assert list((home / "jars").glob("spark-core*.jar"))
    assert make_spark_home(home) == home


@pytest.mark.spark
def test_spark_runs_from_it(spark: "SparkSession") -> None:
    import pyspark

    assert "TieredStopAtLevel=1" in spark.sparkContext.getConf().get("spark.executor.extraJavaOptions", "")
    jvm = spark._jvm
    assert jvm is not None
    given = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    assert "-XX:TieredStopAtLevel=1" in list(given)

    def imported(_: int) -> str:
        import pyspark

        return str(pyspark.__file__)

    assert spark.sparkContext.parallelize([0], 1).map(imported).collect() == [pyspark.__file__]
