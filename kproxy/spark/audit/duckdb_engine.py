"""Rules on DuckDB, in this process: for what one machine can read. Needs neither Java nor PySpark."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
from pyarrow import parquet

from kproxy.spark.audit.engine import ARRIVING, Make, stored
from kproxy.spark.audit.offset_spans import Slice
from kproxy.spark.audit.tables import table
from kproxy.spark.fetching import Range
from kproxy.spark.kafka_cluster import TopicPartition
from kproxy.spark.range_reading import read_range
from kproxy.spark.read_options import read_options

#: What DuckDB holds in memory; beyond that it writes to its temporary directory.
MEMORY: Final = "1GB"
_MOST_THREADS: Final = 4
_ROWS: Final = 8192
#: Functions of Spark SQL that DuckDB has under other names. Its ``hash`` has 64 bits without a sign.
_MACROS: Final = """
    create macro unix_micros(moment) as epoch_us(moment);
    create macro array_join(items, separator) as array_to_string(items, separator);
    create macro sequence(first_one, last_one) as generate_series(first_one, last_one);
    create macro explode(items) as unnest(items);
    create macro string(bytes) as coalesce(try(decode(bytes)), 'invalid UTF-8: ' || hex(bytes));
    create macro xxhash64(a) as cast(hash(a) >> 1 as bigint), (a, b, c, d) as cast(hash(a, b, c, d) >> 1 as bigint);
"""
_NAIVE: Final = pa.timestamp("us")
_UTC: Final = pa.timestamp("us", tz="UTC")


class DuckDbEngine:
    """Views are tables in memory, and on disk where memory ends. Times are in UTC, without a zone within DuckDB."""

    def __init__(self, directory: Path) -> None:
        """What does not fit into memory goes into a directory in this one, which ``close`` removes."""
        self._spill = tempfile.TemporaryDirectory(prefix=".duckdb-", dir=directory)
        self._connection = duckdb.connect(
            config={
                "temp_directory": self._spill.name,
                "memory_limit": MEMORY,
                "threads": min(_MOST_THREADS, os.cpu_count() or 1),
                "preserve_insertion_order": False,
                # nothing is fetched from the network
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "python_enable_replacements": False,  # else a variable of this module may pass for a view
            }
        )
        self._connection.execute(_MACROS)

    def put(self, name: str, rows: pa.Table) -> None:
        self._create(name, rows.schema, f"select * from {ARRIVING}")
        self._insert(name, rows, f"select * from {ARRIVING}")

    def define(self, name: str, sql: str) -> None:
        self._connection.execute(f"create or replace view {name} as {sql}")

    def read(self, name: str, options: Mapping[str, str], slices: Sequence[Slice], schema: pa.Schema, sql: str) -> None:
        how = read_options({**options, "subscribePattern": ".*"})
        self._create(name, schema, sql)
        for topic, partition, start, end, stable in slices:
            wanted = Range(TopicPartition(topic, partition), start, end)
            for batch in read_range(how, wanted, stable) if start < end else ():
                self._insert(name, pa.Table.from_batches([batch]).select(schema.names), sql)

    def make(self, name: str, sql: str, order: Sequence[str], function: Make, schema: pa.Schema) -> None:
        by = f"order by {', '.join(f'q.{each}' for each in order)}" if order else ""
        self._create(name, schema, f"select * from {ARRIVING}")
        # a cursor of its own: inserts would end the query
        found = _reader(self._connection.cursor().sql(f"select * from ({sql}) q {by}"))
        rows = (tuple(row.values()) for batch in found for row in _of_utc(pa.Table.from_batches([batch])).to_pylist())
        made = iter(function(rows))
        while some := list(islice(made, _ROWS)):
            self._insert(name, table(schema, some), f"select * from {ARRIVING}")

    def load(self, name: str, directory: Path, schema: pa.Schema) -> None:
        # Spark may have written times with 96 bits, which stand for nanoseconds
        self.put(name, parquet.read_table(directory, coerce_int96_timestamp_unit="us").cast(schema))

    def store(self, name: str, sql: str, directory: Path) -> str:
        view = stored(name)
        self._connection.execute(f"create or replace table {view} as {sql}")
        found = _reader(self._connection.sql(f"select * from {view}"))
        directory.mkdir()
        with parquet.ParquetWriter(directory / "part-0.parquet", _utc_schema(found.schema)) as writer:
            for batch in found:
                writer.write_table(_of_utc(pa.Table.from_batches([batch])))
        return view

    def rows(self, sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = _of_utc(self._connection.sql(sql).to_arrow_table()).to_pylist()
        return found

    def close(self) -> None:
        self._connection.close()
        self._spill.cleanup()

    def _create(self, name: str, schema: pa.Schema, sql: str) -> None:
        self._connection.register(ARRIVING, _naive(schema.empty_table()))
        self._connection.execute(f"create or replace table {name} as {sql}")

    def _insert(self, name: str, rows: pa.Table, sql: str) -> None:
        self._connection.register(ARRIVING, _naive(rows))
        self._connection.execute(f"insert into {name} {sql}")


def _reader(found: duckdb.DuckDBPyRelation) -> pa.RecordBatchReader:
    return found.to_arrow_reader(_ROWS)


def _naive(rows: pa.Table) -> pa.Table:
    return rows.cast(_with_times(rows.schema, _UTC, _NAIVE))


def _of_utc(rows: pa.Table) -> pa.Table:
    return rows.cast(_utc_schema(rows.schema))


def _utc_schema(schema: pa.Schema) -> pa.Schema:
    return _with_times(schema, _NAIVE, _UTC)


def _with_times(schema: pa.Schema, old: pa.DataType, new: pa.DataType) -> pa.Schema:
    return pa.schema([field.with_type(new) if field.type == old else field for field in schema])
