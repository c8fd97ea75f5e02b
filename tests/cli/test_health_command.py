"""``kproxy health`` against pages of kproxy's own and against what is none."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest

from kproxy.cli import main
from kproxy.config import ExitCode

PAGES = {"/healthz": (200, b"ok\n")}
NOT_READY = (503, json.dumps({"ready": False, "brokers": 0, "reasons": ["no broker has been reached yet"]}).encode())


class _Page(BaseHTTPRequestHandler):
    pages = PAGES

    def do_GET(self) -> None:
        status, body = self.pages[self.path]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, tuple[int, bytes]]]:
    """What a page server on loopback answers by path; KPROXY_HTTP names it, at the address of every interface."""
    answers = dict(PAGES)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Page", (_Page,), {"pages": answers}))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("KPROXY_HTTP", f"0.0.0.0:{server.server_address[1]}")
    yield answers
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("pages")
def test_a_living_kproxy_is_found_where_the_environment_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health"]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("kproxy at 0.0.0.0:")


def test_ready_says_why_not(pages: dict[str, tuple[int, bytes]], capsys: pytest.CaptureFixture[str]) -> None:
    pages["/readyz"] = NOT_READY
    assert main(["health", "--ready"]) == ExitCode.FAILURE
    assert "is not ready: no broker has been reached yet" in capsys.readouterr().err
    pages["/readyz"] = (200, b'{"ready": true}')
    assert main(["health", "--ready"]) == ExitCode.OK


def test_a_stranger_s_answer_is_reported_by_its_status(
    pages: dict[str, tuple[int, bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    pages["/healthz"] = (404, b"[]")
    assert main(["health"]) == ExitCode.FAILURE
    assert "is not alive: HTTP 404" in capsys.readouterr().err


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadingTCPServer(("127.0.0.1", 0), BaseRequestHandler) as taken:
        port = taken.server_address[1]
    assert main(["health", "--http", f"127.0.0.1:{port}"]) == ExitCode.FAILURE
    assert capsys.readouterr().err == f"kproxy: cannot reach 127.0.0.1:{port}: Connection refused\n"


class _Mumbler(BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(1024)
        self.request.sendall(b"\x00\x00\x00\x04 what?\r\n\r\n")


class _Mute(BaseRequestHandler):
    def handle(self) -> None:
        while self.request.recv(1024):
            pass


@pytest.mark.parametrize(
    ("handler", "patience", "message"),
    [(_Mumbler, "60000", "does not speak HTTP"), (_Mute, "50", "has not answered within 0.05 s")],
)
def test_another_program_listens(
    handler: type[BaseRequestHandler], patience: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        assert main(["health", "--http", address, "--timeout-ms", patience]) == ExitCode.FAILURE
        server.shutdown()
    assert message in capsys.readouterr().err


def test_the_file_names_the_address_and_its_other_options_do_not_matter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kproxy.yaml"
    file.write_text("http: off\nssl.key.location: /nowhere\n")
    assert main(["health", "--config", str(file)]) == ExitCode.USAGE
    assert "http is off" in capsys.readouterr().err


def test_a_wrong_address_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--http", "here"]) == ExitCode.USAGE
    assert "http = 'here' (flag --http)" in capsys.readouterr().err
