"""What the data source needs of a session before its first query."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_no_stream_adds_to_the_environment_that_all_sources_share(spark: "SparkSession") -> None:
    # What PythonStreamingSourceRunner.init puts into the map, while another query may be serializing it.
    put = {"SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}
    assert put <= spark.sparkContext.environment.keys()
