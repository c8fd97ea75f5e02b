"""Update and complete mode: changed rows of an aggregation, each micro-batch as one transaction."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql.utils import is_remote

from kproxy.spark.sink_options import parse, stream_batch_id
from kproxy.spark.spark_errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Upsert:
    """For ``foreachBatch``: writes the rows of a micro-batch by the sink ``kproxy``, once, however often it is run.

    Spark allows a sink in Python the mode append alone. With this one a query has ``outputMode("update")`` or
    ``"complete"``: give the rows a key, so that readers and compaction keep the newest row of each.

        counts.writeStream.outputMode("update").foreachBatch(Upsert(options)).start()
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        """``options`` are those of the sink; ``transactional.id`` is needed, one for each query.

        With Spark Connect ``checkpointLocation`` is needed, too, the query's own: ``foreachBatch`` learns the id of its
        query there alone. OptionError.
        """
        self._options = {name: str(value) for name, value in options.items()}
        checked = parse(self._options, is_stream=False)
        #: Of the query; None where Spark tells the query's id.
        self._checkpoint = checked.checkpoint if is_remote() else None
        self._query_id = ""
        if self._checkpoint == "":
            raise OptionError(
                "checkpointLocation: with Spark Connect, Upsert needs that of its query among its options"
            )

    def __call__(self, rows: "DataFrame", batch_id: int) -> None:
        """Writes and commits the rows of a batch; one that was committed before changes nothing."""
        self._query_id = self._query_id or self._find(rows.sparkSession)
        write = rows.write.format("kproxy").options(**self._options)
        try:
            write.option("batch.id", stream_batch_id(self._query_id, batch_id)).mode("append").save()
        except PySparkException as error:
            raise error.with_traceback(None) from None  # Spark reports the stack first, and ten lines of it are its own

    def _find(self, spark: "SparkSession") -> str:
        """The id of the query, which stays with its checkpoint."""
        if self._checkpoint is None:
            found: str | None = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        else:
            lines = spark.read.text(f"{self._checkpoint.rstrip('/')}/metadata").collect()
            found = json.loads("".join(line["value"] for line in lines)).get("id")
        if not found:
            raise RuntimeError("Upsert is for foreachBatch of a streaming query, which Spark gives an id")
        return found
