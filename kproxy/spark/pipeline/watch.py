"""Follows queries to their end: shows their batches, stops them between two batches when that is asked for."""

import json
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from kproxy.spark.pipeline.display import Display
from kproxy.spark.pipeline.pipeline_errors import PipelineFailed, one_line
from kproxy.spark.pipeline.progress import batch_done
from kproxy.spark.pipeline.queries import Running

_POLL_SECONDS = 0.25


class Stop:
    """The wish to end: after the running batch, and at the second time at once."""

    def __init__(self) -> None:
        self._changed = threading.Event()
        self.asked = 0

    def ask(self) -> None:
        """Once: end when the batch is done. Twice: do not wait for it; it is run again at the next start."""
        self.asked += 1
        self._changed.set()

    def wait(self) -> None:
        """Until something is to be looked at: a moment, or less if the wish came."""
        self._changed.wait(_POLL_SECONDS)
        self._changed.clear()


@contextmanager
def on_signals(stop: Stop) -> Iterator[None]:
    """SIGINT and SIGTERM ask for the end while the block lasts; after it the former handlers are restored."""

    def ask(_number: int, _frame: FrameType | None) -> None:
        stop.ask()

    former = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def watch(queries: Sequence[Running], display: Display, stop: Stop) -> None:
    """Returns when all queries have ended; PipelineFailed if one failed, and then the others are stopped."""
    followed = [_Followed(running, display) for running in queries]
    try:
        told = 0
        while not all([each.look(stop) for each in followed]):
            if told < stop.asked:
                told = stop.asked
                display.say("stopping" if told > 1 else "stopping after the running batch; once more stops at once")
            stop.wait()
    finally:
        for each in followed:
            each.end()


class _Followed:
    """One query."""

    def __init__(self, running: Running, display: Display) -> None:
        self._name, self._query = running
        self._display = display
        self._shown = -1
        self._batch_at_stop: int | None = None
        self._stopped = False

    def look(self, stop: Stop) -> bool:
        """Shows what is new; true if the query has ended."""
        active = self._query.isActive
        self._show()
        if not active:
            self._check()
            return True
        if stop.asked and self._may_end(stop):
            self._stopped = True
            self._query.stop()
        return False

    def end(self) -> None:
        if self._query.isActive:
            self._query.stop()

    def _may_end(self, stop: Stop) -> bool:
        if self._batch_at_stop is None:
            self._batch_at_stop = self._shown
        between = not self._query.status["isTriggerActive"]
        return between or stop.asked > 1 or self._shown > self._batch_at_stop

    def _show(self) -> None:
        for progress in self._query.recentProgress:
            done = batch_done(self._name, json.loads(progress.json))
            if done is not None and done.batch > self._shown:
                self._shown = done.batch
                self._display.show(done)

    def _check(self) -> None:
        """Raise PipelineFailed if the query failed, unless kproxy stopped it.

        A stop can interrupt a batch, even one that began after the last look at the status. Such a batch fails with
        whatever it was waiting for. It is not committed, so the next start runs it again.
        """
        if self._stopped:
            return
        error = self._query.exception()
        if error is not None:
            raise PipelineFailed(f"{self._name}: {one_line(error)}")
