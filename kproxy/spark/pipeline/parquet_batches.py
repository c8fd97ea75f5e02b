"""A directory of parquet files that holds every batch once, for readers of any kind and at any moment.

A batch is written under a hidden name and renamed to ``batch=N`` when it is whole. The rename is one step of the file
system and never replaces: a batch that is run again after a crash is there already, and of two drivers one wins.
"""

import uuid
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sql

from kproxy.errors import KproxyError

_STAGING = "_staging"
_OWNER = "_owner"
_QUERY_ID = "sql.streaming.queryId"


class OtherOwner(KproxyError):
    """The directory has the batches of another checkpoint, whose numbers say nothing about those of this one."""


class ParquetBatches:
    """Writes micro-batches; to be given to ``foreachBatch``."""

    def __init__(self, path: str, partition_by: tuple[str, ...] = ()) -> None:
        """``path`` is a directory on a file system that renames a directory in one step: HDFS, ABFS, a local one."""
        self._path = path
        self._partition_by = partition_by
        self._claimed = False

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Writes one batch if it is not there. OtherOwner if the directory belongs to another query."""
        files = _Files(frame, self._path)
        if not self._claimed:
            files.delete(_STAGING)
            self._claim(files, frame)
            self._claimed = True
        if files.exists(f"batch={batch}"):
            return
        staged = f"{_STAGING}/{batch}-{uuid.uuid4().hex}"
        counted = Observation()
        writer = frame.observe(counted, sql.count(sql.lit(1)).alias("rows")).write
        writer.partitionBy(*self._partition_by).parquet(f"{self._path}/{staged}")
        if not counted.get["rows"] or not files.rename(staged, f"batch={batch}"):
            files.delete(staged)

    def _claim(self, files: "_Files", frame: DataFrame) -> None:
        query = str(frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID))
        if not files.exists(_OWNER):
            files.write(f"{_STAGING}/{query}/id", query.encode())
            files.rename(f"{_STAGING}/{query}", _OWNER)
        owner = files.read(f"{_OWNER}/id").decode()
        if owner != query:
            raise OtherOwner(
                f"{self._path} has the output of another checkpoint (query {owner}, this one is {query}): "
                f"give another directory, or that checkpoint"
            )


class _Files:
    """Hadoop's file system, by names within one directory."""

    def __init__(self, frame: DataFrame, root: str) -> None:
        session = frame.sparkSession
        jvm: Any = session._jvm
        assert session.sparkContext._gateway is not None
        self._hadoop = jvm.org.apache.hadoop.fs
        conf = session._jsparkSession.sessionState().newHadoopConf()
        self._root = root
        self._files = self._path("").getFileSystem(conf)
        self._context = self._hadoop.FileContext.getFileContext(self._files.getUri(), conf)
        # The rename of FileSystem would move a directory into one that is there.
        self._no_replace = session.sparkContext._gateway.new_array(getattr(self._hadoop, "Options$Rename"), 0)

    def exists(self, name: str) -> bool:
        return bool(self._files.exists(self._path(name)))

    def delete(self, name: str) -> None:
        self._files.delete(self._path(name), True)

    def read(self, name: str) -> bytes:
        stream = self._files.open(self._path(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, name: str, content: bytes) -> None:
        stream = self._files.create(self._path(name), True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def rename(self, name: str, to: str) -> bool:
        """False if the other name is taken."""
        try:
            self._context.rename(self._path(name), self._path(to), self._no_replace)
        except Exception:
            if not self.exists(to):
                raise
            return False
        return True

    def _path(self, name: str) -> Any:
        return self._hadoop.Path(f"{self._root.rstrip('/')}/{name}" if name else self._root)
