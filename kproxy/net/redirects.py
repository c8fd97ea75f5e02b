"""Requests over HTTP that go where they were sent, and nowhere else."""

from typing import IO, Any
from urllib.request import HTTPRedirectHandler, Request


class NoRedirects(HTTPRedirectHandler):
    """Whoever answers for the server could else send kproxy, and the secret it bears, to any other."""

    def redirect_request(self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> None:
        """Not followed: the answer counts as an error."""
