"""Writes the tables of docs/backends.md from tests/contract/backends.yaml, whose rows the contract's tests check."""

import sys
from pathlib import Path
from typing import Final

import yaml

_ROOT: Final = Path(__file__).resolve().parent.parent
_SOURCE: Final = _ROOT / "tests" / "contract" / "backends.yaml"
_PAGE: Final = _ROOT / "docs" / "backends.md"
_NAMES: Final = {
    "kafka-4.3": "Kafka 4.3.0",
    "kafka-3.9": "Kafka 3.9.1",
    "kafka-2.8": "Kafka 2.8.2",
    "kfake": "franz-go's kfake",
}
_BEGIN: Final = "<!-- the rest is generated from tests/contract/backends.yaml -->\n"


def page(text: str) -> str:
    """Return the page with its tables renewed."""
    rows = yaml.safe_load(_SOURCE.read_text(encoding="utf-8"))
    tables = [
        f"\n## {_NAMES[backend]}\n\n| What it lacks | What kproxy does |\n|---|---|\n"
        + "".join(f"| {row['lacks']} | {row['kproxy']} |\n" for row in found)
        for backend, found in rows.items()
    ]
    return text.partition(_BEGIN)[0] + _BEGIN + "".join(tables)


if __name__ == "__main__":
    before = _PAGE.read_text(encoding="utf-8")
    after = page(before)
    if "--check" in sys.argv and before != after:
        sys.exit("docs/backends.md is not up to date: run make generate")
    _PAGE.write_text(after, encoding="utf-8")
