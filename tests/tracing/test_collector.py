import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv.attributes import client_attributes, error_attributes, server_attributes
from trio.testing import MockClock, wait_all_tasks_blocked

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.codec.produce_layout import PartitionData
from kproxy.proxy.process_stats import ProcessStats
from kproxy.proxy.slots import Slot
from kproxy.proxy.traces import Traced, TraceParent
from kproxy.tracing.collector import Collector, Limits
from kproxy.tracing.spans import Span, SpanContext
from tests.proxy.playbook import context

ONE, TWO = TraceParent(1, 2, True), TraceParent(3, 4, False)


class Kept:
    """An exporter that keeps what it gets."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.arrives = True
        self.closed = False

    def export(self, spans: Sequence[Span]) -> bool:
        if self.arrives:
            self.spans += spans
        return self.arrives

    def close(self) -> None:
        self.closed = True


class Slow(Kept):
    """One that has a batch under way until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.let_go = threading.Event(), threading.Event()

    def export(self, spans: Sequence[Span]) -> bool:
        self.begun.set()
        assert self.let_go.wait(60)
        return super().export(spans)


class Scene:
    def __init__(self, **limits: Any) -> None:
        given: dict[str, Any] = {"ratio": 1.0, "queue": 100, "batch": 10, "delay_s": 1.0, **limits}
        self.kept, self.stats = Kept(), ProcessStats()
        self.collector = Collector(self.kept, Limits(**given), self.stats, random.Random(1), lambda: 5)
        self.ctx = context({})
        self.ctx.node_id = 1

    def request(self, traced: Traced | None = None, *, failed: bool = False, api_key: int = ApiKey.PRODUCE) -> None:
        slot = Slot(api_key, 9, 1, 1.5, 100, traced=traced, failed=failed)
        self.collector.answered(self.ctx, slot, 2.0, 50)

    async def sent(self) -> list[Span]:
        """Ends the collector, which sends what it has."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.collector.run)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert self.kept.closed
        return self.kept.spans


async def test_a_request_becomes_a_span() -> None:
    scene = Scene()
    scene.request(
        Traced(
            [PartitionData((b"t", 0), 0, 0), PartitionData((b"t", 1), 0, 0)],
            errors=[ErrorCode.NOT_ENOUGH_REPLICAS, 12345],
        )
    )
    (span,) = await scene.sent()
    assert (span.name, span.start_ns, span.end_ns) == ("send t", 1_500_000_000, 2_000_000_000)
    assert span.attributes["kproxy.partitions"] == ["t-0", "t-1"]
    assert span.attributes["messaging.destination.name"] == "t"
    assert "messaging.destination.partition.id" not in span.attributes
    assert span.error == "NOT_ENOUGH_REPLICAS, error 12345"
    assert scene.stats.spans == {"exported": 1, "dropped": 0}


async def test_a_request_without_an_answer_is_an_error() -> None:
    scene = Scene()
    scene.request(failed=True, api_key=ApiKey.METADATA)
    (span,) = await scene.sent()
    assert span.error is not None
    assert span.name == "Metadata"
    assert "messaging.operation.type" not in span.attributes
    assert span.attributes["error.type"] == "disconnected"


async def test_names_are_those_of_opentelemetrys_conventions() -> None:
    scene = Scene()
    scene.request(Traced([PartitionData((b"t", 3), 0, 0)], errors=[ErrorCode.NOT_ENOUGH_REPLICAS]))
    (span,) = await scene.sent()
    own = {name for name in span.attributes if name.startswith("kproxy.")}
    conventions = {
        text
        for module in (messaging_attributes, server_attributes, client_attributes, error_attributes)
        for name, text in vars(module).items()
        if name.isupper() and isinstance(text, str)
    }
    assert span.attributes.keys() - own <= conventions
    broker = scene.ctx.services.cluster.brokers[1].address
    assert {name: span.attributes[name] for name in span.attributes.keys() - own} == {
        messaging_attributes.MESSAGING_SYSTEM: messaging_attributes.MessagingSystemValues.KAFKA.value,
        messaging_attributes.MESSAGING_OPERATION_NAME: "send",
        messaging_attributes.MESSAGING_OPERATION_TYPE: messaging_attributes.MessagingOperationTypeValues.SEND.value,
        messaging_attributes.MESSAGING_CLIENT_ID: scene.ctx.client.client_id,
        messaging_attributes.MESSAGING_DESTINATION_NAME: "t",
        messaging_attributes.MESSAGING_DESTINATION_PARTITION_ID: "3",
        client_attributes.CLIENT_ADDRESS: scene.ctx.client.host,
        server_attributes.SERVER_ADDRESS: broker.host,
        server_attributes.SERVER_PORT: broker.port,
        error_attributes.ERROR_TYPE: "NOT_ENOUGH_REPLICAS",
    }


@pytest.mark.parametrize(
    ("api_key", "name", "kind"),
    [
        (ApiKey.FETCH, "poll", "receive"),
        (ApiKey.SHARE_FETCH, "poll", "receive"),
        (ApiKey.OFFSET_COMMIT, "commit", "settle"),
        (ApiKey.TXN_OFFSET_COMMIT, "commit", "settle"),
        (ApiKey.SHARE_ACKNOWLEDGE, "acknowledge", "settle"),
        (ApiKey.PRODUCE, "send", "send"),
    ],
)
async def test_an_operation_without_one_topic_is_named_by_its_broker(api_key: int, name: str, kind: str) -> None:
    scene = Scene()
    scene.request(api_key=api_key)
    scene.ctx.node_id = 99
    scene.request(api_key=api_key)
    known, unknown = await scene.sent()
    assert known.name == f"{name} {scene.ctx.services.cluster.brokers[1].address}"
    assert unknown.name == name, "Metadata has not named this broker"
    for span in (known, unknown):
        assert (span.attributes["messaging.operation.name"], span.attributes["messaging.operation.type"]) == (
            name,
            kind,
        )


@pytest.mark.parametrize(
    ("ratio", "parents", "spans"),
    [(0.0, (), 0), (0.0, (ONE,), 1), (1.0, (TWO,), 0), (0.0, (TWO, ONE), 1), (1.0, (), 1)],
)
async def test_the_context_of_the_records_says_what_is_traced(
    ratio: float, parents: tuple[TraceParent, ...], spans: int
) -> None:
    scene = Scene(ratio=ratio)
    scene.request(Traced(parents=parents))
    assert len(await scene.sent()) == spans


async def test_one_context_is_the_parent_and_several_are_links() -> None:
    scene = Scene()
    scene.request(Traced(parents=(ONE,)))
    scene.request(Traced(parents=(ONE, TWO)))
    one, two = await scene.sent()
    assert (one.parent, one.context.trace_id, one.links) == (ONE, 1, [])
    assert (two.parent, two.links) == (None, [SpanContext(1, 2), SpanContext(3, 4)])
    assert two.context.trace_id not in (1, 3)


async def test_a_part_is_traced() -> None:
    scene = Scene(ratio=0.25, queue=10_000)
    for _ in range(2000):
        scene.request()
    assert 400 < len(await scene.sent()) < 600


async def test_what_finds_the_queue_full_is_counted_and_dropped() -> None:
    scene = Scene(queue=3)
    for _ in range(5):
        scene.request()
    assert len(await scene.sent()) == 3
    assert scene.stats.spans == {"dropped": 2, "exported": 3}


async def test_a_collector_that_is_away_costs_its_spans(autojump_clock: MockClock) -> None:
    scene = Scene(batch=2)
    scene.kept.arrives = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.collector.run)
        for _ in range(4):
            scene.request()
        while scene.stats.spans.get("failed", 0) < 4:  # noqa: ASYNC110 - a thread's work is observed
            await trio.sleep(0.1)
        scene.kept.arrives = True
        scene.request()
        while not scene.kept.spans:  # noqa: ASYNC110 - as above
            await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert scene.stats.spans == {"failed": 4, "exported": 1, "dropped": 0}


async def test_the_end_waits_for_the_batch_that_is_under_way() -> None:
    scene = Scene(delay_s=0.0)
    scene.collector = Collector(slow := Slow(), Limits(1.0, 100, 10, 0.0), scene.stats)
    scene.request()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.collector.run)
        await trio.to_thread.run_sync(slow.begun.wait)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked()
        assert not slow.closed
        slow.let_go.set()
    assert len(slow.spans) == 1
    assert scene.stats.spans == {"exported": 1, "dropped": 0}


async def test_a_batch_that_does_not_get_through_is_not_waited_for_for_ever(autojump_clock: MockClock) -> None:
    scene = Scene()
    scene.collector = Collector(slow := Slow(), Limits(1.0, 100, 1, 1.0), scene.stats)
    scene.request()
    scene.request()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.collector.run)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    slow.let_go.set()
    assert scene.stats.spans == {"dropped": 2}


async def test_a_transaction_is_traced_with_one_of_its_requests_and_linked_to_it() -> None:
    scene = Scene(ratio=0.0)
    scene.collector.begun("id", "me")
    scene.request(Traced(parents=(ONE,), transactional_id="id"))
    scene.collector.step("id", "commit asked")
    scene.collector.ended("id", "committed", [("t", 0)])
    scene.request(Traced(parents=(ONE,), transactional_id="id"), api_key=ApiKey.END_TXN)
    scene.request(Traced(parents=(ONE,), transactional_id="id"))
    write, transaction, end, later = await scene.sent()
    assert (transaction.name, transaction.serves, transaction.error) == ("transaction", False, None)
    assert transaction.attributes["kproxy.outcome"] == "committed"
    assert transaction.attributes["messaging.destination.partition.id"] == "0"
    assert [event.name for event in transaction.events] == ["commit asked"]
    assert transaction.links == [write.context]
    assert write.links == end.links == [transaction.context]
    assert later.links == []


@pytest.mark.parametrize(("reason", "error"), [("client", None), ("fenced", "aborted: fenced")])
async def test_an_abort_has_its_reason(reason: str, error: str | None) -> None:
    scene = Scene()
    scene.collector.begun("id", "me")
    scene.collector.ended("id", reason, ())
    (span,) = await scene.sent()
    told = (span.attributes["kproxy.outcome"], span.attributes["kproxy.abort_reason"], span.error)
    assert told == ("aborted", reason, error)


async def test_what_nobody_began_has_no_end_and_nothing_grows() -> None:
    scene = Scene(queue=20_000)
    scene.collector.step("unknown", "commit asked")
    scene.collector.ended("unknown", "committed", ())
    for number in range(10_500):
        scene.collector.begun(f"id-{number}", "me")
    for number in (0, 10_499):
        scene.collector.ended(f"id-{number}", "committed", ())
    (span,) = await scene.sent()
    assert span.attributes["kproxy.transactional_id"] == "id-10499"
