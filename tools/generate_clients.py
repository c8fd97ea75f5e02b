"""Writes the table of clients in docs/clients.md, from tests/interop/catalog.py and from what the tests showed of each.

With ``--check`` only tells whether it is up to date. A client that was not tested as the catalog has it now is an
error: ``make client-results`` tests all of them, and records what passed.
"""

import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from tests.interop.catalog import ALL_CODECS, CLIENTS, Client
from tests.interop.results import Result, missing, read
from tools.one_page import write_or_check

PAGE = Path(__file__).parent.parent / "docs" / "clients.md"
BEGIN = "<!-- clients: made by `make generate` from tests/interop/catalog.py and results.json -->"
END = "<!-- /clients -->"
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
    rows = [_HEAD, ("---",) * len(_HEAD), *(_row(client, results[client.name]) for client in clients)]
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows)


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


def drawn(page: str, clients: Collection[Client], results: Mapping[str, Result]) -> str:
    """The page with the table between its marks; ValueError if it has none, or a client was not tested."""
    untested = missing(results, clients)
    if untested:
        raise ValueError(f"not tested as they are now: {', '.join(untested)}; run make client-results")
    before, begin, rest = page.partition(BEGIN)
    _, end, behind = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has no place for the table: {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n{table(clients, results)}\n{END}{behind}"


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a difference, or a client was not tested."""
    try:
        text = drawn(PAGE.read_text(encoding="utf-8"), CLIENTS, read())
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return write_or_check(PAGE, text, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
