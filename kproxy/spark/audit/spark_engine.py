"""Rules on Spark: for topics of any size, on this machine or a cluster."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kproxy.spark.audit.engine import ARRIVING, Make, stored
from kproxy.spark.audit.offset_spans import Slice


class SparkEngine:
    """Views are temporary views of the session."""

    def __init__(self, spark: SparkSession) -> None:
        """``spark`` must know the format ``kproxy`` (``register``)."""
        self._spark = spark
        self._views: set[str] = set()
        self._kept: list[DataFrame] = []

    def put(self, name: str, rows: pa.Table) -> None:
        frame = self._spark.createDataFrame(rows) if rows.num_rows else self._empty(rows.schema)
        self._view(name, frame)

    def define(self, name: str, sql: str) -> None:
        self._view(name, self._spark.sql(sql))

    def read(self, name: str, options: Mapping[str, str], slices: Sequence[Slice], schema: pa.Schema, sql: str) -> None:
        wanted = [each for each in slices if each.start < each.end]
        if wanted:
            reader = self._spark.read.format("kproxy").options(**options, **_places(wanted))
            frame = reader.load().select(*schema.names)
        else:
            frame = self._empty(schema)
        self._view(ARRIVING, frame)
        self._keep(name, self._spark.sql(sql))

    def make(self, name: str, sql: str, order: Sequence[str], function: Make, schema: pa.Schema) -> None:
        rows = self._spark.sql(sql)
        # one task a core: the rows are few, and the Python of a task takes long to start
        tasks = self._spark.sparkContext.defaultParallelism
        rows = rows.repartition(tasks, order[0]).sortWithinPartitions(*order) if order else rows.coalesce(tasks)
        # rows, not Arrow: for that PySpark would need pandas in its workers, too
        made = rows.rdd.mapPartitions(function)
        self._keep(name, self._spark.createDataFrame(made, from_arrow_schema(schema), verifySchema=False))

    def load(self, name: str, directory: Path, schema: pa.Schema) -> None:
        frame = self._spark.read.schema(from_arrow_schema(schema)).parquet(_local(directory))
        self._view(name, frame)

    def store(self, name: str, sql: str, directory: Path) -> str:
        view = stored(name)
        frame = self._spark.sql(sql)
        frame.write.parquet(_local(directory))
        self._view(view, self._spark.read.schema(frame.schema).parquet(_local(directory)))
        return view

    def rows(self, sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._spark.sql(sql).toArrow().to_pylist()
        return found

    def close(self) -> None:
        for frame in self._kept:
            frame.unpersist()
        for name in self._views:
            self._spark.catalog.dropTempView(name)

    def _empty(self, schema: pa.Schema) -> DataFrame:
        return self._spark.createDataFrame([], from_arrow_schema(schema))

    def _view(self, name: str, frame: DataFrame) -> None:
        self._views.add(name)
        frame.createOrReplaceTempView(name)

    def _keep(self, name: str, frame: DataFrame) -> None:
        """Computed once, when it is first used: in memory as far as it goes."""
        self._kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        self._view(name, frame)


def _places(slices: Sequence[Slice]) -> dict[str, str]:
    """Options of the source that name the slices."""
    assign: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for each in slices:
        assign.setdefault(each.topic, []).append(each.partition)
        starts.setdefault(each.topic, {})[str(each.partition)] = each.start
        ends.setdefault(each.topic, {})[str(each.partition)] = each.end
    return {"assign": json.dumps(assign), "startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends)}


def _local(path: Path) -> str:
    """A path as Spark names it, whatever its own file system is."""
    return f"file://{path.absolute()}"
