"""docs/clients.md has every client in the catalogue, and the pinned versions are those that are installed."""

import json
import re
from pathlib import Path

import pytest

from tests.interop.catalog import CLIENTS, Client
from tests.interop.transactional import TRANSACTIONAL, Transactional
from tests.support.clients import DRIVERS

_ROWS = [
    line
    for line in Path(__file__).parents[2].joinpath("docs", "clients.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ")
]


def _release(client: Client | Transactional) -> tuple[str, str]:
    match = re.match(r"(\D+)-(\d[\d.]*\d)", client.name)
    assert match is not None
    return match[1], match[2]


@pytest.mark.parametrize("client", (*CLIENTS, *TRANSACTIONAL), ids=lambda client: client.name)
def test_the_table_has_the_client(client: Client | Transactional) -> None:
    family, release = _release(client)
    cells = [row.split("|")[1].replace(",", " ").lower().split() for row in _ROWS]
    assert any(cell[0] == family and release in cell for cell in cells)


def test_names_tell_the_installed_versions() -> None:
    pinned = json.loads((DRIVERS / "node" / "package.json").read_text(encoding="utf-8"))["dependencies"]
    modules = (DRIVERS / "go" / "go.mod").read_text(encoding="utf-8")
    pinned |= {path.rsplit("/", 1)[1]: version for path, version in re.findall(r"^\t(\S+) v(\S+)$", modules, re.M)}
    for family, release in map(_release, CLIENTS):
        if family in pinned and (family, release) != ("sarama", "1.19.0"):
            assert pinned[family] == release
