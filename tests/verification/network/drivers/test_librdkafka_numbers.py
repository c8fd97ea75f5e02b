import io
import json
from typing import Any

import pytest

from verification.network.drivers import librdkafka_numbers

JOB: dict[str, Any] = {"config": {}, "topic": "t", "count": 3, "per_second": 1e6, "first_ms": None}


class Message:
    def __init__(self, value: bytes) -> None:
        self._value = value

    def value(self) -> bytes:
        return self._value


class Producer:
    """Delivers in ``flush`` only; what the driver did is in ``calls``."""

    def __init__(self, _: dict[str, Any]) -> None:
        self._open: list[tuple[bytes, Any]] = []

    def produce(self, _: str, value: bytes, *, partition: int, on_delivery: Any, **stamp: int) -> None:
        assert partition == 0
        calls.append((value, stamp.get("timestamp")))
        self._open.append((value, on_delivery))

    def poll(self, _: float) -> None:
        pass

    def flush(self, _: float) -> None:
        calls.append("flush")
        for value, on_delivery in self._open:
            on_delivery(None, Message(value))
        self._open.clear()


calls: list[Any] = []


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **more: Any) -> list[dict[str, Any]]:
    """Run the driver with a job; what it reports."""
    calls.clear()
    monkeypatch.setattr(librdkafka_numbers.confluent_kafka, "Producer", Producer)
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({**JOB, **more}) + "\n"))
    librdkafka_numbers.main()
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_it_reports_how_far_it_is_and_what_was_acknowledged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = run(monkeypatch, capsys, padding=2)
    assert calls == [(b"0  ", None), (b"1  ", None), (b"2  ", None), "flush"]
    assert reports == [{"done": 1}, {"done": 2}, {"done": 3}, {"acknowledged": [0, 1, 2], "errors": []}]


def test_timestamps_are_some_time_apart(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(monkeypatch, capsys, first_ms=100)
    assert calls[:-1] == [(b"0", 100), (b"1", 101), (b"2", 102)]
    run(monkeypatch, capsys, first_ms=100, step_ms=1000)
    assert calls[:-1] == [(b"0", 100), (b"1", 1100), (b"2", 2100)]


def test_the_others_wait_for_the_first_record(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, capsys, first_alone=True)
    assert calls == [(b"0", None), "flush", (b"1", None), (b"2", None), "flush"]
