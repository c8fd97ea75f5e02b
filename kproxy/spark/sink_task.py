"""One attempt of a task: a member of the query's transaction, which is prepared when all its rows are acknowledged."""

from typing import TYPE_CHECKING, Final, NamedTuple

from kproxy.spark.sink_control import Decider, client_id_of
from kproxy.spark.sink_producer import Sender
from kproxy.spark.sink_rows import Columns
from kproxy.spark.spark_errors import KafkaError
from kproxy.txn.prepared_parts import MOST_MEMBERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from kproxy.spark.sink_options import SinkOptions

_NOT_STREAMING: Final = "0"


class WrittenAttempt(NamedTuple):
    """What an attempt wrote: nothing without a member."""

    member: str | None
    records: int
    #: The batch was committed before, so that its rows were not written again.
    is_committed: bool = False


class TaskNames(NamedTuple):
    """What Spark calls an attempt and what it works for."""

    #: Of the stream, the same for all runs on one checkpoint; empty in a batch write.
    query_id: str
    #: Of the stream's batch.
    batch: str
    partition: int
    #: Counts on for each attempt of the application.
    attempt: int

    @property
    def prefix(self) -> str:
        """For the name of a member: short, for one decision names them all."""
        return f"{self.batch}-{self.partition}-{self.attempt}"


def task_names() -> TaskNames:
    """Of the attempt that runs in this process."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("rows are written by Spark's tasks alone")
    return TaskNames(
        context.getLocalProperty("sql.streaming.queryId") or "",
        context.getLocalProperty("streaming.sql.batchId") or _NOT_STREAMING,
        context.partitionId(),
        context.taskAttemptId(),
    )


def write_attempt(
    batches: "Iterable[pa.RecordBatch]",
    columns: Columns,
    options: "SinkOptions",
    decider: Decider,
    names: TaskNames,
    batch_id: str | None,
) -> WrittenAttempt:
    """Writes all rows and prepares them. If an error is raised, no reader ever sees any of them.

    Rows of a batch that was committed before, by its ``batch_id``, are read and not written. They must be read:
    Spark's stateful operators save the state of the batch when their last row is read.

    KafkaError as of ``Decider`` and ``Sender``, or if the batch has more tasks than one decision may name, and then
    before a row is written; OptionError as of ``Sender.send``.
    """
    attempt: _Attempt | None = None
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            if attempt is None:
                attempt = _Attempt(options, columns, decider, names)
                # The member has begun by then: a commit that comes later aborts it.
                if batch_id in attempt.committed:
                    attempt.abandon()
                    for _ in batches:
                        pass
                    return WrittenAttempt(None, 0, is_committed=True)
            attempt.send(batch)
        return attempt.finish() if attempt is not None else WrittenAttempt(None, 0)
    except BaseException as error:
        if attempt is not None:
            attempt.abandon()
            if isinstance(error, KafkaError):
                decider.check_owner()  # a new owner aborts what the former wrote: that is the cause to report
        raise
    finally:
        if attempt is not None:
            attempt.close()


class _Attempt:
    def __init__(self, options: "SinkOptions", columns: Columns, decider: Decider, names: TaskNames) -> None:
        if names.partition >= MOST_MEMBERS:
            more = f"more than {MOST_MEMBERS:,} tasks, which one commit can't name"
            raise KafkaError(f"the batch has {more}: put coalesce({MOST_MEMBERS}), or less, before the sink")
        self._decider = decider
        self._member, self.committed = decider.begin(names.prefix)
        self._sender = Sender(options, columns, client_id_of(self._member))
        self._records = 0

    def send(self, batch: "pa.RecordBatch") -> None:
        self._records += self._sender.send(batch)

    def finish(self) -> WrittenAttempt:
        self._sender.flush()
        self._decider.prepare(self._member, self._records)
        return WrittenAttempt(self._member, self._records)

    def abandon(self) -> None:
        self._decider.abandon(self._member)

    def close(self) -> None:
        self._sender.close()
