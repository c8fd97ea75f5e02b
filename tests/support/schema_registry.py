"""A stand-in for a schema registry: as much of its HTTP API as a reader of schemas and a first writer use."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        #: The versions of each subject: its schemas with their ids, the first is version 1.
        self.subjects: dict[str, list[dict[str, Any]]] = {}

    def register(self, subject: str, schema: dict[str, Any]) -> dict[str, Any]:
        versions = self.subjects.setdefault(subject, [])
        number = 1 + sum(map(len, self.subjects.values()))
        versions.append({"subject": subject, "version": len(versions) + 1, "id": number, **schema})
        return versions[-1]


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        match self._path():
            case ["subjects", subject, "versions"] if subject in self.server.subjects:
                self._answer([row["version"] for row in self.server.subjects[subject]])
            case ["subjects", subject, "versions", version] if subject in self.server.subjects:
                versions = self.server.subjects[subject]
                self._answer(versions[-1 if version == "latest" else int(version) - 1])
            case _:
                self._answer({"error_code": 40401, "message": "not found"}, 404)

    def do_POST(self) -> None:
        _, subject, *_ = self._path()
        schema = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(self.server.register(subject, schema))

    def _path(self) -> list[str]:
        return [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]

    def _answer(self, found: object, status: int = 200) -> None:
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


@contextmanager
def schema_registry() -> Iterator[str]:
    """Its URL; it runs for the length of the block."""
    with _Server() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
