from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from kproxy.net.http_fetch import fetch

CONTENT = b'{"keys": []}'


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a b.json"
    path.write_bytes(CONTENT)
    assert fetch(path.as_uri()) == CONTENT
    with pytest.raises(OSError, match="No such file"):
        fetch((tmp_path / "none").as_uri())


@contextmanager
def serving(status: int, location: str = "") -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(CONTENT)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/keys"
        server.shutdown()
        thread.join()


def test_a_server() -> None:
    with serving(200) as url:
        assert fetch(url) == CONTENT


@pytest.mark.parametrize("status", [302, 404, 500])
def test_no_other_answer_counts_nor_is_a_redirect_followed(status: int) -> None:
    with serving(200) as elsewhere, serving(status, elsewhere) as url, pytest.raises(OSError, match=str(status)):
        fetch(url)
