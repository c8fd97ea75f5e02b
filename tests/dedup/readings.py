"""Requests that are compared batch by batch."""

from kproxy.budget import MOST_STEPS, RequestBudget
from kproxy.proxy.reading import Reading
from kproxy.proxy.retries import Batch, Retries


class Batches(Reading):
    """What a request consists of so far."""

    def __init__(self, max_bytes: int) -> None:
        self._made: list[tuple[memoryview, int | None]] = []
        self._max_bytes = max_bytes
        super().__init__(self._made, self._whole_budget())

    def _whole_budget(self) -> RequestBudget:
        return RequestBudget(0, self._max_bytes, MOST_STEPS)

    def strip(self, retries: Retries, batch: Batch, arrival_ms: int | None = None) -> list[Batch]:
        """What is left of the request's next batch."""
        self._made.append((batch[1], arrival_ms))
        self.budget = self._whole_budget()  # all of it is read again
        self.whole()
        return retries.strip(batch, len(self._made) - 1, arrival_ms)
