"""Small documents over HTTP: tokens, and the keys of their issuers.

urllib in a thread, because it is in the standard library: an asynchronous client would bring five packages for one
request every few minutes.
"""

from http.client import HTTPException
from ssl import SSLContext
from typing import IO, Any, Final
from urllib.error import URLError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

#: A token or a key set is a few kilobytes.
MOST_BYTES: Final = 1 << 20
_TIMEOUT_SECONDS: Final = 10.0


class _NoRedirects(HTTPRedirectHandler):
    """A server that redirects could send kproxy, and the secret in its request, to any other."""

    def redirect_request(self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> None:
        """Not followed: the response counts as an error."""


def fetch(request: str | Request, context: SSLContext | None = None) -> bytes:
    """What an http, https or file URL names, cut off one byte after ``MOST_BYTES``; blocks for 10 s at most.

    OSError: HTTPError for a response that is an error, URLError if there is none.
    """
    try:
        opener = build_opener(HTTPSHandler(context=context), _NoRedirects)
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
            return bytes(response.read(MOST_BYTES + 1))
    except HTTPException as error:
        raise URLError(f"{type(error).__name__}: the response is not HTTP") from None
