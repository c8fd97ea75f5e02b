"""Writes kproxy's options into the schema of the chart's values; with ``--check`` tells whether it is up to date."""

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from kproxy.config import Config, Option, options
from tools.one_page import write_or_check

CHART: Final = Path(__file__).parent.parent / "deploy" / "helm" / "kproxy"
SCHEMA: Final = CHART / "values.schema.json"
_INTEGER: Final = re.compile(r"integer, (-?\d+) to (\d+)")


def render_schema(text: str) -> str:
    """Return the schema in ``text`` with the options of this kproxy, and no others, as the keys of ``config``."""
    schema = json.loads(text)
    schema["properties"]["config"] = {
        "description": "Options of docs/configuration.md by their dotted names. Made by make generate.",
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _option(entry) for name, entry in options(Config).items()},
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _option(entry: Option) -> dict[str, Any]:
    return {"description": f"{entry.kind.label}. Default: {_default(entry)}", **_values(entry.kind.label)}


def _default(entry: Option) -> str:
    return "none, it is required" if entry.required else entry.default_text


def _values(label: str) -> dict[str, Any]:
    """What a schema can say of a kind of value. kproxy itself checks the rest, and names every problem at its start."""
    if bounds := _INTEGER.fullmatch(label):
        # Text is for --set-string and for values that a pipeline fills in.
        low, high = int(bounds[1]), int(bounds[2])
        return {"anyOf": [{"type": "integer", "minimum": low, "maximum": high}, {"type": "string"}]}
    if label == "true or false":
        return {"type": ["boolean", "string"]}
    return {}


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a difference."""
    return write_or_check(SCHEMA, render_schema(SCHEMA.read_text(encoding="utf-8")), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
