"""Writes docs/openapi.json from the control API; with ``--check`` only tells whether it is up to date."""

import json
import sys
from pathlib import Path

from kproxy.control.openapi import document

PAGE = Path(__file__).parent.parent / "docs" / "openapi.json"


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a difference."""
    page = json.dumps(document(), indent=2) + "\n"
    if "--check" not in arguments:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page:
        return 0
    print(f"{PAGE.name} is out of date: run make generate", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
