"""The Prometheus page for many that ask at once: rendered once for all of them, and beside the loop."""

import gzip
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import trio
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from kproxy.single_flight import SingleFlight

#: Versions of the formats that there are; any other text would be taken for one, too, and fail.
_VERSIONS: Final = ("0.0.4", "1.0.0")
#: Families are collected for so long before other tasks have their turn.
_TURN_SECONDS: Final = 0.005
#: A page is text that repeats itself: more work would not make it much shorter.
_LEVEL: Final = 4


class MetricsPage:
    """The metrics of a registry, in each format that somebody asks for."""

    def __init__(self, registry: Collector) -> None:
        """``registry`` is read in the loop, where what it shows is written."""
        self._registry = registry
        self._pages: dict[tuple[str, bool], bytes] = {}
        self._flights: dict[tuple[str, bool], SingleFlight] = {}

    async def respond(self, request: Request) -> Response:
        """The response to a request for the page."""
        asked = (request.headers.get(name, "") for name in ("accept", "accept-encoding"))
        page, headers = await self.render(*asked)
        return Response(page, headers=headers)

    async def render(self, accept: str, accept_encoding: str) -> tuple[bytes, dict[str, str]]:
        """The page, as it is after this call, and its headers; by the headers Accept and Accept-Encoding."""
        encode, content_type = choose_encoder(_known(accept))
        key = content_type, gzip_accepted(accept_encoding)
        if key not in self._flights:
            self._flights[key] = SingleFlight(partial(self._work, key, encode))
        await self._flights[key]()
        headers = {"content-type": content_type, "vary": "accept, accept-encoding"}
        return self._pages[key], headers | ({"content-encoding": "gzip"} if key[1] else {})

    async def _work(self, key: tuple[str, bool], encode: Callable[[Collector], bytes]) -> None:
        families = await self._collect()
        self._pages[key] = await trio.to_thread.run_sync(_encoded, encode, families, key[1])

    async def _collect(self) -> list[Metric]:
        families, since = [], trio.current_time()
        for family in self._registry.collect():
            families.append(family)
            if trio.current_time() > since + _TURN_SECONDS:
                await trio.lowlevel.checkpoint()
                since = trio.current_time()
        return families


def _known(accept: str) -> str:
    """An Accept header without versions that no encoder has: what it accepts counts without a version then."""
    return ",".join(";".join(filter(_is_known, item.split(";"))) for item in accept.split(","))


def _is_known(parameter: str) -> bool:
    name, _, value = parameter.strip().partition("=")
    return name != "version" or value in _VERSIONS


class _Collected(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _encoded(encode: Callable[[Collector], bytes], families: Iterable[Metric], zipped: bool) -> bytes:
    page = encode(_Collected(families))
    return gzip.compress(page, _LEVEL, mtime=0) if zipped else page
