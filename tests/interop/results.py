"""What the tests of clients last showed, for docs/clients.md: which client, when, and in front of which broker."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final, NamedTuple

from tests.interop.catalog import CLIENTS, Client
from tests.interop.transactional import TRANSACTIONAL, Transactional

RESULTS: Final = Path(__file__).with_name("results.json")
#: The homes of which docs/clients.md has a column, for each producer with transactions.
HOMES: Final = ("kproxy", "auto", "broker-fenced")
#: What a row is called or set up by does not change what was shown.
_WORDS: Final = ("install", "title", "settings", "alone")

Tested = Client | Transactional


def in_home(home: str, client: str) -> str:
    """The name of the result of a producer with transactions."""
    return f"{home}-{client}"


#: Whatever has a result, by the name of that.
ALL: Final[Mapping[str, Tested]] = {
    **{client.name: client for client in CLIENTS},
    **{in_home(home, client.name): client for home in HOMES for client in TRANSACTIONAL},
}


class Result(NamedTuple):
    """All tests of a client passed."""

    date: str
    broker: str
    #: What was tested (``fingerprint``).
    of: str


def fingerprint(client: Tested) -> str:
    """A mark of a client: another one if its release, settings or abilities change."""
    parts = [(each.name, getattr(client, each.name)) for each in fields(client) if each.name not in _WORDS]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def read(path: Path = RESULTS) -> dict[str, Result]:
    """The results by their names."""
    return {name: Result(**row) for name, row in json.loads(path.read_text(encoding="utf-8")).items()}


def add(passed: Collection[str], date: str, broker: str, path: Path = RESULTS) -> None:
    """Records that all tests of these clients passed; what has no result any more goes."""
    known = read(path) if path.exists() else {}
    new = {name: Result(date, broker, fingerprint(client)) for name, client in ALL.items() if name in passed}
    rows = {name: result._asdict() for name, result in sorted((known | new).items()) if name in ALL}
    path.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def missing(results: Mapping[str, Result], clients: Mapping[str, Tested] = ALL) -> list[str]:
    """The results that are not there, or are of a client as it was before."""
    return [name for name, one in clients.items() if name not in results or results[name].of != fingerprint(one)]
