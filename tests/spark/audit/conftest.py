from collections.abc import Iterator
from contextlib import closing

import pytest

from kproxy.spark.audit.duckdb_engine import DuckDbEngine
from kproxy.spark.audit.engine import Engine


@pytest.fixture(scope="module", params=["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Each engine: a test says of both what they must find."""
    if request.param == "duckdb":
        with closing(DuckDbEngine(tmp_path_factory.mktemp("duckdb"))) as found:
            yield found
        return
    # only here: DuckDB's tests are to run without PySpark's start
    from kproxy.spark.audit.spark_engine import SparkEngine

    with closing(SparkEngine(request.getfixturevalue("spark"))) as found:
        yield found
