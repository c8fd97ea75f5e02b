"""The writers that Spark is given: what the driver asks, and what travels in the messages of tasks."""

import pickle
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructType

from kproxy.client import ControlError, OwnerId
from kproxy.spark import sink
from kproxy.spark.sink import TaskMessage, batch_writer, stream_writer
from kproxy.spark.sink_control import Fenced
from kproxy.spark.sink_options import ControlAddress
from kproxy.spark.sink_task import WrittenAttempt
from kproxy.spark.sink_topics import SinkTopics
from kproxy.spark.spark_errors import KafkaError, OptionError
from tests.spark.sink_samples import OWNER, PLAIN, FakeControl

_SCHEMA = StructType().add("value", StringType())


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeControl:
    fake = FakeControl()
    monkeypatch.setattr(ControlAddress, "client", lambda _: fake)
    monkeypatch.setattr(sink, "check_one_kproxy", lambda options, decider: fake.checked())
    monkeypatch.setattr(SinkTopics, "partitions", lambda topics, name: 1)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    return fake


def _message(member: str | None, owner: OwnerId = OWNER) -> TaskMessage:
    return TaskMessage(WrittenAttempt(member, 1), owner, "query")


def test_a_batch_of_a_stream_is_one_commit(control: FakeControl) -> None:
    stream_writer(PLAIN, _SCHEMA)
    writer = pickle.loads(pickle.dumps(stream_writer(PLAIN, _SCHEMA)))
    writer.commit([_message("a"), _message(None), None, _message("b")], 7)
    said = {"batch_id": "query/7", "members": ["a", "b"], "owner": OWNER, "abort_others": True}
    assert control.calls("commit") == [said]
    assert len(control.calls("initialize")) == 1


def test_the_owner_is_who_planned_the_batch(control: FakeControl) -> None:
    stream_writer(PLAIN, _SCHEMA).commit([_message("a", OwnerId(7, 0))], 7)
    assert control.calls("commit")[0]["owner"] == OwnerId(7, 0)


def test_owners_are_not_mixed(control: FakeControl) -> None:
    with pytest.raises(KafkaError, match="different owners"):
        stream_writer(PLAIN, _SCHEMA).commit([_message("a"), _message("b", OwnerId(7, 9))], 7)


def test_an_empty_batch_asks_for_nothing(control: FakeControl) -> None:
    writer = stream_writer(PLAIN, _SCHEMA)
    before = len(control.asked)
    writer.commit([_message(None)], 7)
    writer.commit([], 8)
    assert len(control.asked) == before


def test_a_batch_that_was_committed_before_is_not_committed_again(control: FakeControl) -> None:
    done = TaskMessage(WrittenAttempt(None, 0, is_committed=True), OWNER, "query")
    # One task asked before the commit of a driver that has died was in the log: what it wrote is there already.
    stream_writer(PLAIN, _SCHEMA).commit([done, _message("late")], 7)
    batch_writer(PLAIN | {"batch.id": "2026-11"}, _SCHEMA).commit([done])
    assert not control.calls("commit")
    assert control.calls("abort")[-1] == control.calls("abort")[-3] == {"owner": OWNER, "abort_others": True}


def test_a_failed_batch_leaves_nothing(control: FakeControl) -> None:
    stream_writer(PLAIN, _SCHEMA).abort([None, _message("a")], 7)
    assert control.calls("abort")[-1] == {"owner": OWNER, "abort_others": True}


def test_an_abort_that_fails_does_not_hide_why_the_job_did(
    control: FakeControl, caplog: pytest.LogCaptureFixture
) -> None:
    writer = stream_writer(PLAIN, _SCHEMA)
    control.fails = [ControlError(409, "PRODUCER_FENCED", "no", retriable=False)]
    writer.abort([None], 7)
    assert "another driver or query has taken" in caplog.text


def test_of_two_queries_under_one_id_in_one_driver_the_newer_one_commits(control: FakeControl) -> None:
    older, newer = ({**PLAIN, "checkpointLocation": where} for where in ("/a", "/b"))
    stream_writer(older, _SCHEMA)
    stream_writer(newer, _SCHEMA).commit([_message("b", OwnerId(7, 2))], 1)
    writer = stream_writer(older, _SCHEMA)
    assert len(control.calls("initialize")) == 2
    control.fails = [ControlError(409, "PRODUCER_FENCED", "no", retriable=False)]
    with pytest.raises(Fenced, match="another driver or query has taken"):
        writer.commit([_message("a")], 1)
    assert control.calls("commit")[-1]["owner"] == OWNER
    stream_writer(older, _SCHEMA)  # started again by the user: now the other one is fenced
    assert len(control.calls("initialize")) == 3


def test_each_batch_write_takes_the_id_and_has_a_batch_id_of_its_own(control: FakeControl) -> None:
    for writer in (batch_writer(PLAIN, _SCHEMA), batch_writer(PLAIN, _SCHEMA)):
        writer.commit([_message("a")])
    batch_writer(PLAIN | {"batch.id": "2026-11"}, _SCHEMA).commit([_message("a")])
    ids = [said["batch_id"] for said in control.calls("commit")]
    assert len(set(ids)) == 3
    assert ids[2] == "2026-11"
    assert len(control.calls("initialize")) == 3
    batch_writer(PLAIN, _SCHEMA).abort([None])
    assert control.calls("abort")[-1]["abort_others"]


def test_a_query_whose_rows_would_go_elsewhere_fences_nobody(control: FakeControl) -> None:
    control.elsewhere = KafkaError("is not the kproxy")
    for make in (stream_writer, batch_writer):
        with pytest.raises(KafkaError, match="is not the kproxy"):
            make(PLAIN, _SCHEMA)
    assert control.asked == []


def test_a_driver_is_checked_once_for_a_stream_and_for_each_batch_write(control: FakeControl) -> None:
    for make in (stream_writer, stream_writer, batch_writer, batch_writer):
        make(PLAIN, _SCHEMA)
    assert control.checks == 3


def test_what_is_wrong_is_reported_before_anything_is_asked(control: FakeControl) -> None:
    for given in (PLAIN | {"kafka.nonsense": "1"}, PLAIN | {"kafka.acks": "0"}):
        for make in (stream_writer, batch_writer):
            with pytest.raises(OptionError):
                make(given, _SCHEMA)
    with pytest.raises(OptionError, match="column value"):
        stream_writer(PLAIN, StructType().add("key", StringType()))
    assert control.asked == []


def test_a_driver_without_a_directory_is_reported(control: FakeControl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    with pytest.raises(OptionError, match="SPARK_LOCAL_DIRS"):
        stream_writer(PLAIN, _SCHEMA)
