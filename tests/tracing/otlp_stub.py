"""An OTLP collector that keeps what it is sent."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Stub:
    """What came, decoded."""

    status: int = 200
    resources: list[dict[str, Any]] = field(default_factory=list)
    spans: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    endpoint: str = ""

    def take(self, body: bytes) -> None:
        """Keeps the spans of a request."""
        request = ExportTraceServiceRequest.FromString(body)
        for each in request.resource_spans:
            self.resources.append(attributes(each.resource))
            for scope in each.scope_spans:
                self.spans += scope.spans

    def named(self, name: str) -> list[Any]:
        """The spans of a name, in the order in which they came."""
        return [span for span in self.spans if span.name == name]


def attributes(of: Any) -> dict[str, Any]:
    """The attributes of a span or resource."""
    found: dict[str, Any] = {}
    for row in of.attributes:
        kind = row.value.WhichOneof("value")
        value = getattr(row.value, kind)
        found[row.key] = [one.string_value for one in value.values] if kind == "array_value" else value
    return found


@contextmanager
def collector(status: int = 200) -> Iterator[Stub]:
    """Listens until the block ends."""
    stub = Stub(status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            stub.headers.append(dict(self.headers))
            if self.path == "/v1/traces" and stub.status == 200:
                stub.take(body)
            self.send_response(stub.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        stub.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()
