"""Writes kproxy.yaml with every option, a minimal one, and the JSON Schema by which editors complete and check them.

With ``--check`` it only tells whether they are up to date.
"""

import json
import re
import sys
import textwrap
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from kproxy.cli.config_sample import default_yaml
from kproxy.config import Config, Option, options
from kproxy.config.values import UNITS
from tools.one_page import write_or_check

ROOT: Final = Path(__file__).parent.parent
SCHEMA: Final = ROOT / "docs" / "kproxy.schema.json"
FULL: Final = ROOT / "deploy" / "kproxy.yaml"
MINIMAL: Final = ROOT / "deploy" / "kproxy-minimal.yaml"
_WIDTH: Final = 110
_INTEGER: Final = re.compile(r"integer, (-?\d+) to (\d+)")
_EDITORS: Final = f"# yaml-language-server: $schema=../{SCHEMA.relative_to(ROOT)}\n"
_MINIMAL_TEXT: Final = f"""{_EDITORS}\
# Made by make generate. What a first start needs; kproxy.yaml next to this file has every option.
# Check it: kproxy config check --config FILE. Run it: kproxy run --config FILE.

# Brokers to ask for the cluster's members.
bootstrap.servers: [kafka-1:9092, kafka-2:9092]
# Where clients connect. For clients on other hosts: 0.0.0.0:9092, and advertised.address with a name that they resolve.
listen: 127.0.0.1:19092
# Stable over restarts, and never used by two instances at a time: by it a restarted kproxy recognises retries.
instance.id: shipper-1
# Sends commands to a running kproxy: kproxy txn, kproxy config reload.
control.socket: /run/kproxy/control.sock
"""
_FULL_HEAD: Final = f"""{_EDITORS}\
# Made by make generate. Every option with its default; only bootstrap.servers is required. Remove the # to change one.
# An option may be nested, too: log: {{level: debug}}. docs/configuration.md says when a change takes effect.
"""


def option_schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schema of each option's value, by its dotted name."""
    return {name: _schema(entry) for name, entry in options(Config).items()}


def _schema(entry: Option) -> dict[str, Any]:
    default = "none, it is required" if entry.required else entry.default_text
    unit = f" {entry.kind.unit}" if entry.kind.unit and not entry.default_is_text else ""
    return {
        "description": f"{entry.kind.label}. Default: {default}{unit}",
        **_values(entry.kind.label, entry.kind.unit),
    }


def _values(label: str, unit: str) -> dict[str, Any]:
    """What a schema can say of a kind of value. kproxy itself checks the rest, and names every problem at its start."""
    if bounds := _INTEGER.fullmatch(label):
        # Text is for --set-string, for values that a pipeline fills in, and for units.
        low, high = int(bounds[1]), int(bounds[2])
        examples = {"examples": [f"10{name}" for name in UNITS[unit]]} if unit in UNITS else {}
        return {"anyOf": [{"type": "integer", "minimum": low, "maximum": high}, {"type": "string"}], **examples}
    if label == "true or false":
        return {"type": ["boolean", "string"]}
    if label.startswith("one of "):
        return {"type": "string", "examples": label.removeprefix("one of ").split(", ")}
    return {}


def render_schema() -> str:
    """Return the schema of a configuration file, with dotted and with nested names."""
    schemas = option_schemas()
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "kproxy.yaml",
        "description": "Made by make generate from kproxy/config/*_options.py.",
        "definitions": {
            name: schema | {"description": f"{options(Config)[name].reason} ({schema['description']})"}
            for name, schema in schemas.items()
        },
        **_nested({name: {"$ref": f"#/definitions/{name}"} for name in schemas}),
    }
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _nested(schemas: dict[str, dict[str, Any]]) -> dict[str, Any]:
    properties = dict(schemas)
    heads = sorted(schemas, key=lambda name: name.split(".")[0])
    for head, names in groupby(heads, key=lambda name: name.split(".")[0]):
        inner = {name.removeprefix(f"{head}."): schemas[name] for name in names if name != head}
        if inner and head not in schemas:
            properties[head] = _nested(inner)
    return {"type": "object", "additionalProperties": False, "properties": properties}


def render_full() -> str:
    """Return a file with every option, all but the required ones commented out."""
    parts = [_FULL_HEAD]
    for group, members in groupby(options(Config).values(), key=lambda entry: entry.group):
        parts.append(f"# ---- {group}\n")
        parts.extend(map(_entry, members))
    return "\n".join(parts)


def _entry(entry: Option) -> str:
    unit = f" ({entry.kind.unit})" if entry.kind.unit else ""
    notes = textwrap.wrap(f"{entry.reason} Value: {entry.kind.label}{unit}.", _WIDTH, break_on_hyphens=False)
    text = "".join(f"# {line}\n" for line in notes)
    if entry.required:
        return f"{text}{entry.name}: [kafka-1:9092, kafka-2:9092]\n"
    if entry.default_is_text:
        return f"{text}#{entry.name}:  # default: {entry.default_text}\n"
    return f"{text}#{entry.name}: {default_yaml(entry)}\n"


def pages() -> dict[Path, str]:
    """Return the text of each file that this tool makes."""
    return {SCHEMA: render_schema(), FULL: render_full(), MINIMAL: _MINIMAL_TEXT}


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a difference."""
    return max(write_or_check(page, text, arguments) for page, text in pages().items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
