"""What the tests of clients last showed, for docs/clients.md: which client, when, and in front of which broker."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final, NamedTuple

from tests.interop.catalog import CLIENTS, Client

RESULTS: Final = Path(__file__).with_name("results.json")
#: What a row is called or set up by does not change what was shown.
_WORDS: Final = ("install", "title", "settings", "alone")


class Result(NamedTuple):
    """All tests of a client passed."""

    date: str
    broker: str
    #: What was tested (``fingerprint``).
    of: str


def fingerprint(client: Client) -> str:
    """A mark of a row of the catalog: another one if its release, settings or abilities change."""
    parts = [(each.name, getattr(client, each.name)) for each in fields(client) if each.name not in _WORDS]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def read(path: Path = RESULTS) -> dict[str, Result]:
    """The results by the name of the client."""
    return {name: Result(**row) for name, row in json.loads(path.read_text(encoding="utf-8")).items()}


def add(passed: Collection[str], date: str, broker: str, path: Path = RESULTS) -> None:
    """Records that all tests of these clients passed; what is no row of the catalog any more goes."""
    known = read(path) if path.exists() else {}
    results = {
        client.name: Result(date, broker, fingerprint(client)) if client.name in passed else known[client.name]
        for client in CLIENTS
        if client.name in passed or client.name in known
    }
    rows = {name: result._asdict() for name, result in sorted(results.items())}
    path.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def missing(results: Mapping[str, Result], clients: Collection[Client] = CLIENTS) -> list[str]:
    """The clients that were not tested as the catalog has them now."""
    return [
        client.name
        for client in clients
        if client.name not in results or results[client.name].of != fingerprint(client)
    ]
