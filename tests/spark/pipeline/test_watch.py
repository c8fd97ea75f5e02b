import json
import os
import signal
from typing import Any, cast

import pytest

from kproxy.spark.pipeline.display import Display, JsonLines
from kproxy.spark.pipeline.pipeline_errors import PipelineFailed
from kproxy.spark.pipeline.progress import BatchDone
from kproxy.spark.pipeline.queries import Running
from kproxy.spark.pipeline.watch import Stop, on_signals, watch


class Progress:
    def __init__(self, batch: int, *, ran: bool = True) -> None:
        self.json = json.dumps(
            {
                "timestamp": "2026-11-22T02:58:50.561Z",
                "batchId": batch,
                "numInputRows": 1,
                "durationMs": {"triggerExecution": 1} | ({"addBatch": 1} if ran else {}),
                "sources": [],
                "observedMetrics": {},
            }
        )


class FakeQuery:
    """A query whose batches end one by one, each time it is asked whether it is active."""

    def __init__(
        self, batches: int, *, between: bool = False, error: str | None = None, error_of_stop: str | None = None
    ) -> None:
        """``error_of_stop``: what the batch fails with that ``stop`` interrupts."""
        self._left = batches
        self._between = between
        self._error = error
        self._error_of_stop = error_of_stop
        self.recentProgress: list[Progress] = []
        self.stopped = False

    @property
    def isActive(self) -> bool:
        if self.stopped or not self._left:
            return False
        self._left -= 1
        batch = len(self.recentProgress)
        self.recentProgress.append(Progress(batch))
        return True

    @property
    def status(self) -> dict[str, Any]:
        return {"isTriggerActive": not self._between}

    def exception(self) -> Exception | None:
        return ValueError(self._error) if self._error else None

    def stop(self) -> None:
        self.stopped = True
        self._error = self._error or self._error_of_stop


class Shown(JsonLines):
    def __init__(self) -> None:
        self.words: list[str] = []
        self.batches: list[tuple[str, int]] = []

    def say(self, text: str) -> None:
        self.words.append(text)

    def show(self, done: BatchDone) -> None:
        self.batches.append((done.query, done.batch))


class Hasty(Stop):
    """Waits for nothing; asks for the end so many times before the first look."""

    def __init__(self, times: int = 0) -> None:
        super().__init__()
        for _ in range(times):
            self.ask()

    def wait(self) -> None:
        """At once."""


def follow(display: Display, stop: Stop, **queries: FakeQuery) -> None:
    watch([Running(name, cast(Any, query)) for name, query in queries.items()], display, stop)


def test_until_all_have_ended() -> None:
    shown = Shown()
    follow(shown, Hasty(), a=FakeQuery(2), b=FakeQuery(1))
    assert sorted(shown.batches) == [("a", 0), ("a", 1), ("b", 0)]


def test_one_that_fails_stops_the_others() -> None:
    bad, good = FakeQuery(1, error="[STREAM_FAILED] no luck"), FakeQuery(100)
    with pytest.raises(PipelineFailed, match=r"bad: .*no luck"):
        follow(Shown(), Hasty(), bad=bad, good=good)
    assert good.stopped


def test_the_running_batch_is_waited_for() -> None:
    query, shown = FakeQuery(100), Shown()
    follow(shown, Hasty(1), a=query)
    assert shown.batches == [("a", 0), ("a", 1)]
    assert shown.words == ["stopping after the running batch; once more stops at once"]


def test_nothing_is_waited_for_between_batches_or_at_the_second_time() -> None:
    for query, times in ((FakeQuery(100, between=True), 1), (FakeQuery(100), 2)):
        shown = Shown()
        follow(shown, Hasty(times), a=query)
        assert shown.batches == [("a", 0)]


@pytest.mark.parametrize("between", [True, False], ids=["a batch begins at that moment", "at the second time"])
def test_a_batch_that_a_stop_interrupts_is_no_failure(between: bool) -> None:
    error = "An error occurred while calling o261.parquet."
    one, other = (FakeQuery(100, between=between, error_of_stop=error) for _ in range(2))
    follow(Shown(), Hasty(1 if between else 2), one=one, other=other)
    assert one.stopped
    assert other.stopped


def test_what_failed_before_the_stop_is_a_failure() -> None:
    with pytest.raises(PipelineFailed, match="bad: no luck"):
        follow(Shown(), Hasty(1), bad=FakeQuery(0, error="no luck"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_ask(number: signal.Signals) -> None:
    stop, before = Stop(), signal.getsignal(number)
    with on_signals(stop):
        os.kill(os.getpid(), number)
        stop.wait()
    assert stop.asked == 1
    assert signal.getsignal(number) is before
