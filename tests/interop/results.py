"""What the tests of clients last showed, for docs/clients.md: which client, when, and in front of which broker."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from tests.interop.catalog import CLIENTS, Client
from tests.interop.homes import can_run, rule_and_release
from tests.interop.request_versions import Versions
from tests.interop.transactional import TRANSACTIONAL, Transactional

RESULTS: Final = Path(__file__).with_name("results.json")
#: The homes of which docs/clients.md has a column, for each producer with transactions.
HOMES: Final = ("kproxy", "auto", "broker-fenced")
#: The homes of which it lists the versions of requests, each on a Kafka of another release.
LISTED: Final = ("kproxy", "kproxy-on-3.9.1")
_HOLDER: Final = LISTED[0]
_NONE: Final[Mapping[str, Versions]] = MappingProxyType({})
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
    #: What a producer with transactions sent, by the release of Kafka; in its result in the first of ``LISTED``.
    versions: Mapping[str, Versions] = _NONE


def fingerprint(client: Tested) -> str:
    """A mark of a client: another one if its release, settings or abilities change."""
    parts = [(each.name, getattr(client, each.name)) for each in fields(client) if each.name not in _WORDS]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def read(path: Path = RESULTS) -> dict[str, Result]:
    """The results by their names."""
    return {name: Result(**row) for name, row in json.loads(path.read_text(encoding="utf-8")).items()}


def holder(client: str) -> str:
    """The name of the result that has the versions of a producer's requests."""
    return in_home(_HOLDER, client)


def releases(name: str) -> list[str]:
    """The releases of Kafka of which a result has the versions of requests."""
    client = name.removeprefix(f"{_HOLDER}-")
    homes = LISTED if isinstance(ALL[name], Transactional) and name == holder(client) else ()
    return [rule_and_release(home)[1] for home in homes if can_run(home, client)]


def add(
    passed: Collection[str],
    date: str,
    broker: str,
    path: Path = RESULTS,
    versions: Mapping[str, Mapping[str, Versions]] = MappingProxyType({}),
) -> None:
    """Records that all tests of these clients passed, and what they sent; what has no result any more goes."""
    known = read(path) if path.exists() else {}
    new = {
        name: Result(date, broker, fingerprint(client), versions.get(name, _NONE))
        for name, client in ALL.items()
        if name in passed
    }
    rows = {name: _row(result) for name, result in sorted((known | new).items()) if name in ALL}
    path.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def _row(result: Result) -> dict[str, object]:
    row = result._asdict()
    if not result.versions:
        del row["versions"]
    return row


def missing(results: Mapping[str, Result], clients: Mapping[str, Tested] = ALL) -> list[str]:
    """The results that are not there, are of a client as it was before, or lack the versions of requests."""
    return [name for name, one in clients.items() if name not in results or not _is_whole(name, results[name], one)]


def _is_whole(name: str, result: Result, of: Tested) -> bool:
    return result.of == fingerprint(of) and set(result.versions) == set(releases(name))
