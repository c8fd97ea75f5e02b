"""Update and complete mode: changed rows of an aggregation, each micro-batch as one transaction."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql.utils import is_remote

from kproxy.spark.sink_options import parse, stream_batch_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Upsert:
    """For ``foreachBatch``: writes the rows of a micro-batch by the sink ``kproxy``, once, however often it is run.

    Spark allows a sink in Python the mode append alone. With this one a query has ``outputMode("update")`` or
    ``"complete"``: give the rows a key, so that readers and compaction keep the newest row of each.

        counts.writeStream.outputMode("update").foreachBatch(Upsert(options)).start()
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        """``options`` are those of the sink; ``transactional.id`` is needed, one for each query.

        OptionError; RuntimeError with Spark Connect, where ``foreachBatch`` does not learn the id of its query.
        """
        if is_remote():
            raise RuntimeError(
                "Upsert cannot be used with Spark Connect, which does not give foreachBatch the id of its query: run "
                "this query by spark-submit"
            )
        self._options = {name: str(value) for name, value in options.items()}
        parse(self._options, is_stream=False)

    def __call__(self, rows: "DataFrame", batch_id: int) -> None:
        """Writes and commits the rows of a batch; one that was committed before changes nothing."""
        query_id = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if not query_id:
            raise RuntimeError("Upsert is for foreachBatch of a streaming query, which Spark gives an id")
        write = rows.write.format("kproxy").options(**self._options)
        try:
            write.option("batch.id", stream_batch_id(query_id, batch_id)).mode("append").save()
        except PySparkException as error:
            raise error.with_traceback(None) from None  # Spark reports the stack first, and ten lines of it are its own
