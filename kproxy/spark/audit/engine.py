"""What runs the rules of an audit. A rule is written once, in SQL that Spark and DuckDB both understand.

What rules have to heed: ``r.offset``, ``r.at`` and ``s.end`` need the table's name, sums are cast to bigint, times are
compared as ``unix_micros``; there are no structs. Spark's hints are comments for DuckDB. Views are named ``audit_...``,
so that those of an application in the same session of Spark keep their names.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from kproxy.spark.audit.offset_spans import Slice

#: The view of what is being read.
ARRIVING: Final = "audit_arriving"
Make: TypeAlias = Callable[[Iterable[Any]], Iterable[tuple[Any, ...]]]


class Engine(Protocol):
    """Views by name. A name that is given again means the newer view, but not in views that exist already."""

    def put(self, name: str, rows: pa.Table) -> None:
        """A view of rows that are at hand."""

    def define(self, name: str, sql: str) -> None:
        """A view of what a query finds, computed where it is used."""

    def read(self, name: str, options: Mapping[str, str], slices: Sequence[Slice], schema: pa.Schema, sql: str) -> None:
        """A view of what ``sql`` makes of ``ARRIVING``: the rows of the slices, read with these options of the source.

        It is read once. Columns that the schema does not have are dropped.
        """

    def make(self, name: str, sql: str, order: Sequence[str], function: Make, schema: pa.Schema) -> None:
        """A view of what a function in Python makes of the rows of a query, computed once.

        With ``order``, rows with the same value of its first column come together, and in this order. The function is
        called for parts of the rows, perhaps on other machines.
        """

    def load(self, name: str, directory: Path, schema: pa.Schema) -> None:
        """A view of a Parquet table that any engine has stored. OSError if it is not there."""

    def store(self, name: str, sql: str, directory: Path) -> str:
        """Writes what a query finds into a new directory, as Parquet; the name of a view of it."""

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """What a query finds."""

    def close(self) -> None:
        """Releases what the engine holds."""


def stored(name: str) -> str:
    """The view of a table that was stored under this name."""
    return f"audit_stored_{name}"
