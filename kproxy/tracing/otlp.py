"""Spans to an OTLP collector over HTTP, by OpenTelemetry's own exporter. Needs the extra ``otel``."""

import socket
from collections.abc import Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from kproxy import __version__
from kproxy.tracing.spans import Span

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_SCOPE: Final = InstrumentationScope("kproxy", __version__)
_HOST_NAME: Final = "host.name"


class OtlpExporter:
    """As ``kproxy.tracing.collector.Exporter``.

    Headers, certificates and compression come from OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_HEADERS ...).
    """

    def __init__(self, endpoint: str, service_name: str, instance_id: str) -> None:
        """``endpoint`` without ``/v1/traces``."""
        self._exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
        self._resource = Resource(
            {
                SERVICE_NAME: service_name,
                SERVICE_VERSION: __version__,
                SERVICE_INSTANCE_ID: instance_id,
                _HOST_NAME: socket.gethostname(),
            }
        )

    def export(self, spans: Sequence[Span]) -> bool:
        """As ``Exporter``: blocks, and tries again while the collector is busy."""
        return self._exporter.export([self._readable(span) for span in spans]) is SpanExportResult.SUCCESS

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _readable(self, span: Span) -> ReadableSpan:
        parent = span.parent
        return ReadableSpan(
            name=span.name,
            context=_context(*span.context, remote=False),
            parent=None if parent is None else _context(parent.trace_id, parent.span_id, remote=True),
            resource=self._resource,
            attributes=span.attributes,
            events=[Event(event.name, timestamp=event.at_ns) for event in span.events],
            links=[Link(_context(*link, remote=True)) for link in span.links],
            kind=SpanKind.SERVER if span.serves else SpanKind.INTERNAL,
            instrumentation_scope=_SCOPE,
            status=Status(StatusCode.UNSET if span.error is None else StatusCode.ERROR, span.error),
            start_time=span.start_ns,
            end_time=span.end_ns,
        )


def _context(trace_id: int, span_id: int, *, remote: bool) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=remote, trace_flags=_SAMPLED)
