"""Spans of requests and transactions: which are recorded, and how they are sent.

The event loop appends finished spans to a bounded queue and never waits for it; a span for which there is no room is
counted and dropped. A task passes them in batches to a thread, which encodes and sends them. OpenTelemetry's own
BatchSpanProcessor takes a lock for each span, and does not say how many it dropped (``kproxy_spans``).
"""

import random
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import trio

from kproxy.codec.topic_partition import TopicPartition
from kproxy.proxy.context import Context
from kproxy.proxy.process_stats import ProcessStats
from kproxy.proxy.slots import Slot
from kproxy.proxy.traces import Traced
from kproxy.tracing.spans import Span, SpanContext, SpanEvent, partition_attributes, request_span

#: Bounds: transactions, and links and events of each. A transaction whose end is never reported is no leak.
_MOST_TRANSACTIONS: Final = 10_000
_MOST_LINKS: Final = 128
#: The time to send what is left when the process ends.
_LAST_SECONDS: Final = 3.0
_COMMITTED: Final = ("committed", "prepared")


class Exporter(Protocol):
    """What sends spans; called in a thread."""

    def export(self, spans: Sequence[Span]) -> bool:
        """True if the collector accepted them."""
        ...

    def close(self) -> None:
        """Ends attempts in progress."""
        ...


class Limits(NamedTuple):
    """The options ``otel.*``; ``ratio`` of the traces that begin here are made."""

    ratio: float
    queue: int
    batch: int
    delay_s: float


@dataclass(slots=True)
class _Transaction:
    context: SpanContext
    client_id: str
    start_ns: int
    sampled: bool
    is_over: bool = False
    links: list[SpanContext] = field(default_factory=list)
    events: list[SpanEvent] = field(default_factory=list)


class Collector:
    """A ``kproxy.proxy.traces.Traces``; ``run`` sends the spans."""

    def __init__(
        self,
        exporter: Exporter,
        limits: Limits,
        stats: ProcessStats,
        rng: random.Random | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """``clock`` gives ns since the epoch."""
        self._exporter = exporter
        self._limits = limits
        self._counts = stats.spans
        self._random = rng or random.Random()
        self._clock = clock
        self._queue: deque[Span] = deque()
        self._transactions: dict[str, _Transaction] = {}
        self._wanted = trio.Event()
        self._is_ending = False

    # -- called by the cores

    def answered(self, ctx: Context, slot: Slot, now: float, size: int) -> None:
        """Records a request if it is sampled: by the context of its records, otherwise by chance."""
        traced = slot.traced
        if not self._is_sampled(traced):
            return
        parents = traced.parents if traced is not None else ()
        context = self._context(parents[0].trace_id if len(parents) == 1 else None)
        span = request_span(ctx, slot, now, size, context)
        if traced is not None and traced.transactional_id is not None:
            self._join(span, traced.transactional_id)
        self._append(span)

    def _is_sampled(self, traced: Traced | None) -> bool:
        if traced is not None and traced.parents:
            return any(parent.sampled for parent in traced.parents)
        return self._by_chance()

    def _by_chance(self) -> bool:
        return self._random.random() < self._limits.ratio

    def _join(self, span: Span, transactional_id: str) -> None:
        """Links a request and the transaction that it belongs to, both ways."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return
        span.links.append(transaction.context)
        if transaction.is_over:
            del self._transactions[transactional_id]  # this was the request that ended it
            return
        transaction.sampled = True
        if len(transaction.links) < _MOST_LINKS:
            transaction.links.append(span.context)

    def begun(self, transactional_id: str, client_id: str) -> None:
        if len(self._transactions) >= _MOST_TRANSACTIONS:
            del self._transactions[next(iter(self._transactions))]
        self._transactions.pop(transactional_id, None)
        self._transactions[transactional_id] = _Transaction(
            self._context(None), client_id, self._clock(), self._by_chance()
        )

    def step(self, transactional_id: str, name: str) -> None:
        transaction = self._transactions.get(transactional_id)
        if transaction is not None and len(transaction.events) < _MOST_LINKS:
            transaction.events.append(SpanEvent(name, self._clock()))

    def ended(self, transactional_id: str, outcome: str, places: Collection[TopicPartition]) -> None:
        """A transaction is exported if one of its requests is, or by chance."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None or transaction.is_over:
            return
        transaction.is_over = True
        if not transaction.sampled:
            return
        span = Span("transaction", transaction.context, transaction.start_ns, self._clock(), serves=False)
        span.links, span.events = transaction.links, transaction.events
        span.attributes = {
            "messaging.system": "kafka",
            "messaging.client.id": transaction.client_id,
            "kproxy.transactional_id": transactional_id,
            "kproxy.outcome": outcome if outcome in _COMMITTED else "aborted",
            **partition_attributes(places),
        }
        if outcome not in _COMMITTED:
            span.attributes["kproxy.abort_reason"] = outcome
            if outcome != "client":
                span.fail(outcome, f"aborted: {outcome}")
        self._append(span)

    def _context(self, trace_id: int | None) -> SpanContext:
        draw = self._random.getrandbits
        return SpanContext(draw(128) or 1 if trace_id is None else trace_id, draw(64) or 1)

    def _append(self, span: Span) -> None:
        if len(self._queue) >= self._limits.queue:
            self._count("dropped", 1)
            return
        self._queue.append(span)
        if len(self._queue) >= self._limits.batch:
            self._wanted.set()

    def _count(self, outcome: str, spans: int) -> None:
        self._counts[outcome] = self._counts.get(outcome, 0) + spans

    # -- out of the process

    async def run(self) -> None:
        """Sends batches until cancelled; then the rest, for a bounded time."""
        # A batch that is cancelled would be lost and not counted.
        sending = trio.CancelScope(shield=True)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send_until_the_end, sending)
                try:
                    await trio.sleep_forever()
                finally:
                    sending.deadline = trio.current_time() + _LAST_SECONDS
                    self._is_ending = True
                    self._wanted.set()
        finally:
            self._count("dropped", len(self._queue))
            self._exporter.close()

    async def _send_until_the_end(self, sending: trio.CancelScope) -> None:
        with sending:
            while not self._is_ending:
                with trio.move_on_after(self._limits.delay_s):
                    await self._wanted.wait()
                self._wanted = trio.Event()
                await self._send_all()
            await self._send_all()

    async def _send_all(self) -> None:
        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), self._limits.batch))]
            outcome = "dropped"
            try:
                arrived = await trio.to_thread.run_sync(self._exporter.export, batch, abandon_on_cancel=True)
                outcome = "exported" if arrived else "failed"
            finally:
                self._count(outcome, len(batch))
            if not arrived:
                return  # the rest waits for the next time; what comes meanwhile may find the queue full
