"""One attempt of a task: all of it is prepared, or nothing of it is ever seen."""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from kproxy.client import ControlError
from kproxy.spark.sink_control import Decider, Fenced
from kproxy.spark.sink_options import SinkOptions
from kproxy.spark.sink_rows import Columns
from kproxy.spark.sink_task import TaskNames, WrittenAttempt, write_attempt
from kproxy.spark.spark_errors import KafkaError, OptionError
from kproxy.txn.prepared_parts import MOST_MEMBERS
from tests.spark.fake_cluster import fake_cluster
from tests.spark.sink_samples import OWNER, FakeClock, FakeControl, batch, options

_VALUE = Columns(value=0, key=None, headers=None, topic=None, partition=None, timestamp=None)
_FIRST = TaskNames("q", "5", 0, 1)
_LOST = ControlError(409, "TRANSACTION_ABORTABLE", "lost", retriable=False)


@pytest.fixture(scope="module")
def given() -> Iterator[SinkOptions]:
    with fake_cluster() as fake, fake.client() as client:
        client.create_topic("out", 1)
        yield options(bootstrap=fake.bootstrap, retry_ms=1000)


def _write(
    given: SinkOptions,
    control: FakeControl,
    batches: Iterator[pa.RecordBatch],
    names: TaskNames = _FIRST,
    batch_id: str | None = None,
) -> WrittenAttempt:
    decider = Decider(control, given, OWNER, FakeClock())
    return write_attempt(batches, _VALUE, given, decider, names, batch_id)


def test_rows_are_written_and_prepared(given: SinkOptions) -> None:
    control = FakeControl()
    written = _write(given, control, iter([batch("a", "b"), batch(), batch("c")]))
    assert written.records == 3
    assert control.prepared == {written.member}
    assert [name for name, _ in control.asked] == ["begin_member", "prepare_member"]
    assert control.calls("prepare_member") == [{"member": written.member, "records": 3}]


def test_no_rows_need_no_member(given: SinkOptions) -> None:
    control = FakeControl()
    assert _write(given, control, iter([batch()])) == WrittenAttempt(None, 0)
    assert control.asked == []


def test_rows_of_a_committed_batch_are_read_and_not_written(given: SinkOptions) -> None:
    control = FakeControl(committed=("q/4", "q/5"))
    rows = iter([batch(), batch("a"), batch("b")])
    assert _write(given, control, rows, batch_id="q/5") == WrittenAttempt(None, 0, is_committed=True)
    assert not list(rows)  # a stateful operator before the sink saves its state when its last row is read
    # A member that begins after the commit of its batch is aborted by nobody else, and readers would wait at its rows.
    assert [name for name, _ in control.asked] == ["begin_member", "abort_member"]


@pytest.mark.parametrize("batch_id", ["q/6", "r/5", "q/55"])
def test_rows_of_another_batch_are_written(given: SinkOptions, batch_id: str) -> None:
    control = FakeControl(committed=("q/4", "q/5"))
    assert _write(given, control, iter([batch("a")]), batch_id=batch_id).member in control.prepared


def test_whatever_goes_wrong_the_member_is_given_up(given: SinkOptions) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield batch("a")
        raise ZeroDivisionError

    control = FakeControl()
    with pytest.raises(ZeroDivisionError):
        _write(given, control, failing())
    assert [name for name, _ in control.asked] == ["begin_member", "abort_member"]
    control = FakeControl(fails=[None, _LOST], epoch=OWNER.producer_epoch)
    with pytest.raises(KafkaError, match="TRANSACTION_ABORTABLE"):
        _write(given, control, iter([batch("a")]))
    asked = ["begin_member", "prepare_member", "describe", "abort_member", "describe"]
    assert [name for name, _ in control.asked] == asked


def test_an_attempt_whose_member_a_new_owner_aborted_names_the_new_owner(given: SinkOptions) -> None:
    control = FakeControl(fails=[None, _LOST], epoch=OWNER.producer_epoch + 1)
    with pytest.raises(Fenced, match="another driver or query has taken"):
        _write(given, control, iter([batch("a")]))


def test_a_batch_of_too_many_tasks_fails_before_a_row_is_written(given: SinkOptions) -> None:
    control = FakeControl()
    last, too_many = TaskNames("q", "5", MOST_MEMBERS - 1, 1), TaskNames("q", "5", MOST_MEMBERS, 2)
    assert _write(given, control, iter([batch("a")]), last).records == 1
    asked = len(control.asked)
    assert _write(given, control, iter([batch()]), too_many) == WrittenAttempt(None, 0)
    with pytest.raises(KafkaError, match=r"more than 1,000 tasks.*coalesce\(1000\)"):
        _write(given, control, iter([batch("a")]), too_many)
    assert len(control.asked) == asked


def test_a_row_without_a_topic_fails_the_attempt(given: SinkOptions) -> None:
    columns = Columns(value=0, key=None, headers=None, topic=1, partition=None, timestamp=None)
    given = replace(given, topic=None)
    control = FakeControl()
    rows = pa.record_batch({"value": ["a"], "topic": pa.nulls(1, pa.string())})
    with pytest.raises(OptionError):
        write_attempt(
            [rows], columns, given, Decider(control, given, OWNER, FakeClock()), TaskNames("", "0", 0, 0), None
        )
    assert control.calls("abort_member")


def test_names_are_short() -> None:
    assert TaskNames("q" * 36, "12", 3, 4567).prefix == "12-3-4567"
