"""Writes docs/openapi.json from the control API; with ``--check`` only tells whether it is up to date."""

import json
import sys
from pathlib import Path

from kproxy.control.openapi import document
from tools.one_page import write_or_check

PAGE = Path(__file__).parent.parent / "docs" / "openapi.json"


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a difference."""
    return write_or_check(PAGE, json.dumps(document(), indent=2) + "\n", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
