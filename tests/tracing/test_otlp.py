from kproxy import __version__
from kproxy.proxy.traces import TraceParent
from kproxy.tracing.otlp import OtlpExporter
from kproxy.tracing.spans import Span, SpanContext, SpanEvent
from tests.tracing.otlp_stub import attributes, collector


def span() -> Span:
    return Span(
        "Produce",
        SpanContext(1 << 127, 1 << 63),
        1_000,
        3_000,
        parent=TraceParent(1 << 127, 5, True),
        links=[SpanContext(6, 7)],
        attributes={"messaging.system": "kafka", "kproxy.api_version": 9, "kproxy.partitions": ["t-0", "t-1"]},
        events=[SpanEvent("commit asked", 2_000)],
        error="NOT_ENOUGH_REPLICAS",
    )


def test_a_collector_decodes_what_was_sent() -> None:
    with collector() as stub:
        exporter = OtlpExporter(stub.endpoint + "/", "gateway", "box-1")
        assert exporter.export([span()])
        exporter.close()
    (resource,) = stub.resources
    names = ("service.name", "service.instance.id", "service.version")
    assert [resource[name] for name in names] == ["gateway", "box-1", __version__]
    (came,) = stub.spans
    assert (came.trace_id.hex(), came.span_id.hex()) == ("8" + "0" * 31, "8" + "0" * 15)
    assert came.parent_span_id.hex() == "0" * 15 + "5"
    assert (came.start_time_unix_nano, came.end_time_unix_nano) == (1_000, 3_000)
    assert attributes(came) == dict(span().attributes)
    assert [(event.name, event.time_unix_nano) for event in came.events] == [("commit asked", 2_000)]
    assert [link.span_id.hex() for link in came.links] == ["0" * 15 + "7"]
    assert (came.status.code, came.status.message, came.kind) == (2, "NOT_ENOUGH_REPLICAS", 2)


def test_a_collector_that_refuses_is_told_apart() -> None:
    with collector(status=400) as stub:
        exporter = OtlpExporter(stub.endpoint, "kproxy", "box-1")
        assert not exporter.export([span()])
        exporter.close()
