"""Clients one after the other, in several threads, at a given rate."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from verification.soak.clients import KINDS, Client

_MOST_FAULTS: Final = 20


class Crowd:
    """Begins so many clients a second until the block ends; fewer where that is more than kproxy can serve."""

    def __init__(self, bootstrap: str, seed: int, per_second: float, threads: int) -> None:
        self.served: Counter[str] = Counter()
        #: What went wrong for clients: the first of these errors.
        self.faults: list[str] = []
        self.failed = 0
        self._bootstrap = bootstrap
        self._pause = threads / per_second
        self._changed = threading.Condition()
        self._busy = 0
        self._rests = False
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._serve, args=(number, random.Random(seed * 1_000_003 + number)), daemon=True)
            for number in range(threads)
        ]

    @property
    def clients(self) -> int:
        """How many have left so far."""
        with self._changed:
            return self.served.total() + self.failed

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Waits until all clients have left; none begins before the block ends."""
        with self._changed:
            self._rests = True
            self._changed.wait_for(lambda: not self._busy)
        try:
            yield
        finally:
            with self._changed:
                self._rests = False
                self._changed.notify_all()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _serve(self, worker: int, chance: random.Random) -> None:
        parts, shares = zip(*KINDS, strict=True)
        due = time.monotonic() + chance.random() * self._pause
        number = 0
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due = max(due + self._pause, time.monotonic() - self._pause)
            number += 1
            [part] = chance.choices(parts, shares)
            client = Client(self._bootstrap, f"soak-{worker}-{number}", f"soak-{worker}", chance)
            with self._changed:
                self._changed.wait_for(lambda: not self._rests)
                self._busy += 1
            fault = _fault(part, client)
            with self._changed:
                self._busy -= 1
                self._note(part.__name__, fault)
                self._changed.notify_all()

    def _note(self, part: str, fault: str) -> None:
        if not fault:
            self.served[part] += 1
            return
        self.failed += 1
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(fault)


def _fault(part: Callable[[Client], None], client: Client) -> str:
    """What went wrong when a client did its part; empty: nothing."""
    try:
        part(client)
    except Exception as error:  # whatever it is, the others continue
        return f"{client.name}, {part.__name__}: {error!r}"
    return ""
