"""Writes the tables of brokers' differences from tests/contract/backends.yaml, which the contract's tests check."""

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

import yaml

from tools.one_page import write_or_check

_ROOT: Final = Path(__file__).resolve().parent.parent
_SOURCE: Final = _ROOT / "tests" / "contract" / "backends.yaml"
_NAMES: Final = {
    "kafka-4.3": "Kafka 4.3.0",
    "kafka-3.9": "Kafka 3.9.1",
    "kafka-2.8": "Kafka 2.8.2",
    "kfake": "franz-go's kfake",
}
PAGES: Final = {
    _ROOT / "docs" / "backends.md": ("kafka-4.3", "kafka-3.9", "kafka-2.8"),
    _ROOT / "verification" / "corners" / "brokers.md": ("kfake",),
}
_BEGIN: Final = "<!-- the rest is generated from tests/contract/backends.yaml -->\n"


def page(text: str, backends: Collection[str]) -> str:
    """Return a page with the tables of ``backends`` renewed."""
    rows = yaml.safe_load(_SOURCE.read_text(encoding="utf-8"))
    tables = [
        f"\n## {_NAMES[backend]}\n\n| What it lacks | What kproxy does |\n|---|---|\n"
        + "".join(f"| {row['lacks']} | {row['kproxy']} |\n" for row in rows[backend])
        for backend in backends
    ]
    return text.partition(_BEGIN)[0] + _BEGIN + "".join(tables)


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a difference."""
    return max(
        write_or_check(path, page(path.read_text(encoding="utf-8"), backends), arguments)
        for path, backends in PAGES.items()
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
