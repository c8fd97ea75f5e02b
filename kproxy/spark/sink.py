"""The sink: what each task writes becomes visible by one decision of the driver, or never.

Of Spark 4, as measured: for each micro-batch a process of the driver's asks for the stream's writer, which travels to
the tasks; another one asks for it again and calls ``commit`` or ``abort`` with the tasks' messages. So what commit has
to know travels in the messages. A batch write has one writer, which is handed from process to process.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from uuid import uuid4

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kproxy.client import OwnerId
from kproxy.spark.owner_memory import OwnerMemory
from kproxy.spark.read_options import FIRST_PATIENCE_S
from kproxy.spark.sink_control import Decider, Fenced
from kproxy.spark.sink_ends import check_one_kproxy
from kproxy.spark.sink_options import SinkOptions, parse, stream_batch_id
from kproxy.spark.sink_rows import Columns, columns_of
from kproxy.spark.sink_task import TaskNames, WrittenAttempt, task_names, write_attempt
from kproxy.spark.sink_topics import SinkTopics
from kproxy.spark.spark_errors import KafkaError, OptionError, cause_first
from kproxy.spark.worker_heap import settle_worker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_LOG: Final = logging.getLogger(__name__)
_WRONG_MODES: Final = {
    "complete": "would append the whole result to the topic at each batch",
    "update": "is not possible, as Spark has it for no sink in Python",
}


@dataclass(frozen=True, slots=True)
class TaskMessage(WriterCommitMessage):
    """What the driver learns of a task that is through."""

    written: WrittenAttempt
    owner: OwnerId
    #: Of the stream; empty in a batch write.
    query_id: str


@dataclass(frozen=True, slots=True)
class _Writer:
    """What both kinds of writer do; ``owner`` is the identity of the driver when it planned the batch."""

    options: SinkOptions
    columns: Columns
    owner: OwnerId

    def decider(self, owner: OwnerId | None = None) -> Decider:
        return Decider(self.options.control.client(), self.options, owner or self.owner)

    def write(self, batches: "Iterator[pa.RecordBatch]", batch_id: str | None, names: TaskNames) -> TaskMessage:
        written = write_attempt(batches, self.columns, self.options, self.decider(), names, batch_id)
        settle_worker()
        return TaskMessage(written, self.owner, names.query_id)

    def commit(self, told: Sequence[TaskMessage], batch_id: str) -> None:
        """One commit of what the tasks have prepared. KafkaError, Fenced.

        If a task found the batch committed, all its rows are in the log: a task that asked before that commit was
        there has written its rows a second time.
        """
        owner = told[0].owner if told else None
        if any(message.written.is_committed for message in told):
            self.decider(owner).abort()
            return
        members = [message.written.member for message in told if message.written.member is not None]
        if members:  # else what there is belongs to attempts that failed: the next decision ends it
            self.decider(owner).commit(batch_id, members)
        settle_worker()


class StreamWriter(DataSourceStreamArrowWriter):
    """Of one micro-batch."""

    def __init__(self, writer: _Writer) -> None:
        self._writer = writer

    @cause_first()
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskMessage:
        """Writes the rows of one task; KafkaError and OptionError fail the attempt, and nothing of it is seen."""
        names = task_names()
        return self._writer.write(iterator, stream_batch_id(names.query_id, names.batch), names)

    @cause_first()
    def commit(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:
        """Makes the batch visible; once, however often it is run and committed. KafkaError, Fenced."""
        told = _told(messages)
        if told:
            with self._forgetting():
                self._writer.commit(told, stream_batch_id(told[0].query_id, batchId))

    def abort(self, messages: "Sequence[WriterCommitMessage | None]", batchId: int) -> None:
        """Aborts what the batch's tasks have prepared, and what is open, if kproxy can be asked."""
        with _not_in_the_way(), self._forgetting():
            self._writer.decider().abort()

    @contextmanager
    def _forgetting(self) -> Iterator[None]:
        """Forgets the owner when it is fenced: Spark ends the query then, and the user may start it again."""
        try:
            yield
        except Fenced:
            _memory(self._writer.options).forget()
            raise


class BatchWriter(DataSourceArrowWriter):
    """Of one ``df.write``."""

    def __init__(self, writer: _Writer, batch_id: str) -> None:
        self._writer = writer
        self._batch_id = batch_id

    @cause_first()
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskMessage:
        return self._writer.write(iterator, self._writer.options.batch_id, task_names())

    @cause_first()
    def commit(self, messages: "Sequence[WriterCommitMessage | None]") -> None:
        """Makes it visible. KafkaError, Fenced."""
        self._writer.commit(_told(messages), self._batch_id)

    def abort(self, messages: "Sequence[WriterCommitMessage | None]") -> None:
        with _not_in_the_way():
            self._writer.decider().abort()


@contextmanager
def _not_in_the_way() -> Iterator[None]:
    """Logs an error of an abort: raised, it would hide from the user why the job failed.

    The next driver aborts what could not be aborted now.
    """
    try:
        yield
    except KafkaError as error:
        _LOG.warning("what the tasks wrote is aborted later: %s", error)


def check_stream(options: Mapping[str, str], schema: "StructType", mode: str) -> None:
    """Raises OptionError and KafkaError as ``stream_writer``; fences nobody."""
    checked, _ = _checked_stream(options, schema, mode)
    _check_places(checked)


def stream_writer(options: Mapping[str, str], schema: "StructType", mode: str = "append") -> StreamWriter:
    """The writer of a micro-batch; takes the transactional id when the query is new in this driver.

    OptionError for an option, a column or an output mode that is wrong; KafkaError if kproxy can't be asked; Fenced.
    """
    checked, columns = _checked_stream(options, schema, mode)
    owner = _memory(checked).owner(lambda: _take(checked))
    settle_worker()
    return StreamWriter(_Writer(checked, columns, owner))


def batch_writer(options: Mapping[str, str], schema: "StructType") -> BatchWriter:
    """The writer of a batch; takes the transactional id, so an earlier one under this id is fenced.

    Errors as of ``stream_writer``.
    """
    checked, columns = _checked(options, schema, is_stream=False)
    return BatchWriter(_Writer(checked, columns, _take(checked)), checked.batch_id or uuid4().hex)


def _take(options: SinkOptions) -> OwnerId:
    """Takes the transactional id. KafkaError as of ``_check_places``, before anybody is fenced."""
    _check_places(options)
    return Decider(options.control.client(), options, None).take()


def _check_places(options: SinkOptions) -> None:
    """KafkaError if rows would go elsewhere than decisions, or the topic does not exist."""
    first = replace(options, retry_ms=min(options.retry_ms, int(FIRST_PATIENCE_S * 1000)))
    check_one_kproxy(first, Decider(options.control.client(), first, None))
    if options.topic is not None and not options.creates_topics:
        with first.open_cluster("kproxy-spark") as cluster:
            SinkTopics(cluster, create=False).partitions(options.topic)


def _checked_stream(options: Mapping[str, str], schema: "StructType", mode: str) -> tuple[SinkOptions, Columns]:
    if mode in _WRONG_MODES:
        raise OptionError(
            f"outputMode: {mode} {_WRONG_MODES[mode]}; valid: append, or kproxy.spark.Upsert with foreachBatch, which "
            "writes the newest row of each key"
        )
    return _checked(options, schema, is_stream=True)


def _checked(options: Mapping[str, str], schema: "StructType", *, is_stream: bool) -> tuple[SinkOptions, Columns]:
    checked = parse(options, is_stream=is_stream)
    return checked, columns_of(schema, has_topic=checked.topic is not None)


def _memory(options: SinkOptions) -> OwnerMemory:
    return OwnerMemory(options, _directory_of_driver())


def _directory_of_driver() -> Path:
    """A directory that Spark makes for each driver, and removes at its end."""
    directories = os.environ.get("SPARK_LOCAL_DIRS", "")
    if not directories:
        raise OptionError("SPARK_LOCAL_DIRS: Spark 4.2 or later sets it for its own processes, and it is not set")
    return Path(directories.split(",")[0])


def _told(messages: "Sequence[WriterCommitMessage | None]") -> list[TaskMessage]:
    told = [cast("TaskMessage", message) for message in messages if message is not None]
    if len({message.owner for message in told}) > 1:
        raise KafkaError("the tasks of one batch have different owners: it can't be committed as one")
    return told
