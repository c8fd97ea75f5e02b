"""Released clients as processes: a job goes in, operations come out; here they are but scripts."""

import io
import json

import pytest

from verification.chaos.drivers import operations
from verification.history import Operation, Outcome, Send, decode

JOB = {"name": "driver", "places": [["t", 0], ["t", 1]], "equal": "", "per_second": 1000}


def settled(offset: int | None, error: str, capsys: pytest.CaptureFixture[str]) -> Operation:
    operations.settler(JOB, "t", 1, "v")(offset, error)
    return decode(capsys.readouterr().out)


def test_an_acknowledged_record_is_an_operation_that_went_well(capsys: pytest.CaptureFixture[str]) -> None:
    found = settled(7, "", capsys)
    assert (found.process, found.outcome, found.sends) == ("driver", Outcome.OK, (Send("t", 1, 7, "v"),))
    assert found.complete is not None
    assert found.invoke <= found.complete


def test_a_failed_record_is_of_unknown_fate(capsys: pytest.CaptureFixture[str]) -> None:
    found = settled(None, "KafkaTimeoutError", capsys)
    assert (found.outcome, found.error) == (Outcome.INFO, "KafkaTimeoutError")


def test_an_offset_below_zero_was_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert settled(-1, "", capsys).sends == (Send("t", 1, None, "v"),)


def test_the_job_is_the_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(JOB) + "\n"))
    assert operations.read_job() == JOB
