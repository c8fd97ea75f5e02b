"""Writes the tables of clients in docs/clients.md and verification/corners/clients.md.

They say what the catalog of clients has, and what the tests showed of each.

With ``--check`` only tells whether they are up to date. A client that was not tested as it is now is an error:
``make client-results`` tests all of them, and records what passed.
"""

import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from tests.interop.catalog import ALL_CODECS, CLIENTS, Abilities, Client
from tests.interop.homes import in_each_run
from tests.interop.request_versions import NAMES
from tests.interop.results import HOMES, Result, holder, in_home, missing, read, releases
from tests.interop.transactional import TRANSACTIONAL, Transactional
from tools.one_page import dated, draw_or_check, markdown_table, with_part

_ROOT = Path(__file__).parent.parent
PAGE = _ROOT / "docs" / "clients.md"
CORNERS = _ROOT / "verification" / "corners" / "clients.md"
BEGIN = "<!-- clients: made by `make generate` from tests/interop/catalog.py and results.json -->"
END = "<!-- /clients -->"
BEGIN_PRODUCERS = "<!-- producers: made by `make generate` from tests/interop/transactional.py -->"
END_PRODUCERS = "<!-- /producers -->"
BEGIN_TRANSACTIONAL = (
    "<!-- transactional: made by `make generate` from tests/interop/{transactional.py,results.json} -->"
)
END_TRANSACTIONAL = "<!-- /transactional -->"
BEGIN_VERSIONS = "<!-- versions: made by `make generate` from tests/interop/results.json -->"
END_VERSIONS = "<!-- /versions -->"
_HEAD = ("client", "settings", "without kproxy", "format", "codecs", "re-encoded")


def table(clients: Collection[Client], results: Mapping[str, Result]) -> str:
    """A row for each client that was tested."""
    dates = [_date(results[client.name]) for client in clients]
    return dated(_HEAD, [_row(client) for client in clients], dates)


def producers_table(clients: Collection[Transactional]) -> str:
    """A row for each library whose producers have transactions."""
    found: dict[str, list[str]] = {}
    for client in clients:
        library, _, release = client.title.partition(" ")
        found.setdefault(library, []).append(release)
    return markdown_table(("library", "releases"), [(name, "; ".join(releases)) for name, releases in found.items()])


def transactional_table(clients: Collection[Transactional], results: Mapping[str, Result]) -> str:
    """A row for each producer with transactions, a column for each home."""
    rows, dates = [], []
    for client in clients:
        first = min((results[in_home(home, client.name)] for home in HOMES), key=lambda one: (one.date, one.broker))
        rows.append((client.title, *("each run" if in_each_run(home, client.name) else "yes" for home in HOMES)))
        dates.append(_date(first))
    return dated(("producer", *(f"`{home}`" for home in HOMES)), rows, dates)


def versions_table(clients: Collection[Transactional], results: Mapping[str, Result]) -> str:
    """A row for each producer with transactions, a column for each API: the versions of the requests that it sends."""
    return markdown_table(("producer", *NAMES), [_versions(client, results) for client in clients])


def _versions(client: Transactional, results: Mapping[str, Result]) -> tuple[str, ...]:
    name = holder(client.name)
    new, *old = (results[name].versions[release] for release in releases(name))
    return (client.title, *(_sent(new.get(name, ""), *(found.get(name, "") for found in old)) for name in NAMES))


def _sent(new: str, old: str | None = None) -> str:
    """What is sent to the newest Kafka, and in brackets what is sent to the old one, if that is something else."""
    return new if old in (new, None) else f"{new} ({old or '-'})".strip()


def _date(result: Result) -> str:
    return f"{result.date}, {result.broker}"


def _row(client: Client) -> tuple[str, ...]:
    can = client.can
    more = [codec for codec in can.recoded if codec not in can.reads]
    return (
        client.title or client.name,
        client.settings,
        client.alone or ("no" if client.refused else "yes"),
        _format(can),
        _codecs(can.codecs) + ("" if can.reads == can.codecs else f"; reads {_codecs(can.reads)}"),
        " ".join(more),
    )


def _format(can: Abilities) -> str:
    """The newest format of records that the client writes, and what it does not read of it."""
    written = "2" if can.headers else "1" if can.timestamps else "0"
    if can.timestamps and not can.reads_timestamps:
        return f"{written}, without reading timestamps"
    return f"{written}, without reading headers" if can.headers and not can.reads_headers else written


def _codecs(codecs: Collection[str]) -> str:
    return "all" if set(codecs) == set(ALL_CODECS) else " ".join(codec for codec in codecs if codec != "none")


def drawn(page: str, results: Mapping[str, Result]) -> str:
    """docs/clients.md with its tables between their marks; ValueError if it has none, or a client was not tested."""
    _all_tested(results)
    page = with_part(page, BEGIN, END, table(CLIENTS, results))
    return with_part(page, BEGIN_PRODUCERS, END_PRODUCERS, producers_table(TRANSACTIONAL))


def corners_drawn(page: str, results: Mapping[str, Result]) -> str:
    """verification/corners/clients.md, in the same way."""
    _all_tested(results)
    page = with_part(page, BEGIN_TRANSACTIONAL, END_TRANSACTIONAL, transactional_table(TRANSACTIONAL, results))
    return with_part(page, BEGIN_VERSIONS, END_VERSIONS, versions_table(TRANSACTIONAL, results))


def _all_tested(results: Mapping[str, Result]) -> None:
    untested = missing(results)
    if untested:
        raise ValueError(f"not tested as they are now: {', '.join(untested)}; run make client-results")


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a difference, or a client was not tested."""
    done = [
        draw_or_check(PAGE, lambda page: drawn(page, read()), arguments),
        draw_or_check(CORNERS, lambda page: corners_drawn(page, read()), arguments),
    ]
    return max(done)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
