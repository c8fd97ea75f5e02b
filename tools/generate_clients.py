"""Writes the tables of clients in docs/clients.md, from tests/interop and from what the tests showed of each client.

With ``--check`` only tells whether they are up to date. A client that was not tested as it is now is an error:
``make client-results`` tests all of them, and records what passed.
"""

import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from tests.interop.catalog import ALL_CODECS, CLIENTS, Client
from tests.interop.homes import in_each_run
from tests.interop.request_versions import NAMES
from tests.interop.results import HOMES, Result, holder, in_home, missing, read, releases
from tests.interop.transactional import TRANSACTIONAL, Transactional
from tools.one_page import draw_or_check, markdown_table, with_part

PAGE = Path(__file__).parent.parent / "docs" / "clients.md"
BEGIN = "<!-- clients: made by `make generate` from tests/interop/catalog.py and results.json -->"
END = "<!-- /clients -->"
BEGIN_TRANSACTIONAL = (
    "<!-- transactional: made by `make generate` from tests/interop/{transactional.py,results.json} -->"
)
END_TRANSACTIONAL = "<!-- /transactional -->"
BEGIN_VERSIONS = "<!-- versions: made by `make generate` from tests/interop/results.json -->"
END_VERSIONS = "<!-- /versions -->"
_HEAD = (
    "client",
    "settings",
    "Kafka alone",
    "through kproxy",
    "writes",
    "reads",
    "timestamps",
    "headers",
    "stamped by",
    "tested",
)


def table(clients: Collection[Client], results: Mapping[str, Result]) -> str:
    """A row for each client that was tested."""
    return markdown_table(_HEAD, [_row(client, results[client.name]) for client in clients])


def transactional_table(clients: Collection[Transactional], results: Mapping[str, Result]) -> str:
    """A row for each producer with transactions, a column for each home."""
    head = ("producer", *(f"`{home}`" for home in HOMES), "tested")
    return markdown_table(head, [_homes(client, results) for client in clients])


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


def _homes(client: Transactional, results: Mapping[str, Result]) -> tuple[str, ...]:
    first = min((results[in_home(home, client.name)] for home in HOMES), key=lambda one: (one.date, one.broker))
    cells = ("each run" if in_each_run(home, client.name) else "yes" for home in HOMES)
    return (client.title, *cells, f"{first.date}, {first.broker}")


def _row(client: Client, result: Result) -> tuple[str, ...]:
    can = client.can
    return (
        client.title or client.name,
        client.settings,
        client.alone or ("no" if client.refused else "yes"),
        "yes",
        _codecs(can.codecs),
        _reads(client),
        _fields(can.timestamps, can.reads_timestamps),
        _fields(can.headers, can.reads_headers),
        "the client" if client.idempotent else "kproxy",
        f"{result.date}, {result.broker}",
    )


def _codecs(codecs: Collection[str]) -> str:
    return "all" if set(codecs) == set(ALL_CODECS) else " ".join(codecs)


def _reads(client: Client) -> str:
    own = client.can.reads
    more = [codec for codec in client.can.recoded if codec not in own]
    text = "the same" if own == client.can.codecs and _codecs(own) != "all" else _codecs(own)
    return f"{text} ({' '.join(more)})" if more else text


def _fields(writes: bool, reads: bool) -> str:
    return {(True, True): "yes", (False, False): "no", (True, False): "writes only", (False, True): "reads only"}[
        writes, reads
    ]


def drawn(page: str, results: Mapping[str, Result]) -> str:
    """The page with the tables between their marks; ValueError if it has none, or a client was not tested."""
    untested = missing(results)
    if untested:
        raise ValueError(f"not tested as they are now: {', '.join(untested)}; run make client-results")
    page = with_part(page, BEGIN, END, table(CLIENTS, results))
    page = with_part(page, BEGIN_TRANSACTIONAL, END_TRANSACTIONAL, transactional_table(TRANSACTIONAL, results))
    return with_part(page, BEGIN_VERSIONS, END_VERSIONS, versions_table(TRANSACTIONAL, results))


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a difference, or a client was not tested."""
    return draw_or_check(PAGE, lambda page: drawn(page, read()), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
