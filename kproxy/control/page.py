"""The status page: three files of the package, which ask for the facts every two seconds."""

from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kproxy.control.page_guard import PageRules, abort_ability

#: Nothing from elsewhere, nothing inline, in nobody's frame.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
_FILES: Final = {"/page.css": "text/css", "/page.js": "text/javascript"}
_ABILITY: Final = "{{abort}}"


def static_routes(rules: PageRules) -> list[Route]:
    """The page and what it loads."""
    directory = files("kproxy.control").joinpath("static")
    index = directory.joinpath("index.html").read_text(encoding="utf-8")
    texts = {path: directory.joinpath(path[1:]).read_text(encoding="utf-8") for path in _FILES}

    async def page(request: Request) -> Response:
        text = index.replace(_ABILITY, abort_ability(request.scope, rules))
        return Response(text, headers=_HEADERS, media_type="text/html")

    async def part(request: Request) -> Response:
        path = request.url.path
        return Response(texts[path], headers=_HEADERS, media_type=_FILES[path])

    return [Route("/", page), *(Route(path, part) for path in _FILES)]
