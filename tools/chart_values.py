"""The table of a chart's values: each key of values.yaml with its default, and the comment above it."""

import json
from collections.abc import Iterator
from typing import Final, NamedTuple

import yaml

_EMPTY: Final = {'""': "", "{}": "", "[]": ""}


class Value(NamedTuple):
    """One line of the table."""

    name: str
    default: str
    text: str


def read_values(text: str) -> list[Value]:
    """Return the keys of a values.yaml in its order, nested ones by their dotted names."""
    node = yaml.compose(text)
    assert isinstance(node, yaml.MappingNode)
    return list(_walk(node, "", text.splitlines(), ""))


def _walk(node: yaml.MappingNode, prefix: str, lines: list[str], inherited: str) -> Iterator[Value]:
    comment = inherited
    for key, value in node.value:
        above = lines[key.start_mark.line - 1].strip() if key.start_mark.line else ""
        # Without a comment of its own a key belongs to the one above it.
        comment = _comment(lines, key.start_mark.line) or (comment if above else inherited)
        name = f"{prefix}{key.value}"
        if isinstance(value, yaml.MappingNode) and value.value and key.start_mark.line != value.start_mark.line:
            yield from _walk(value, f"{name}.", lines, comment)
        else:
            default = json.dumps(yaml.safe_load(yaml.serialize(value)))
            yield Value(name, _EMPTY.get(default, default), comment)


def _comment(lines: list[str], line: int) -> str:
    """The comment above a line, without its examples, which are indented."""
    found: list[str] = []
    while line and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].strip().removeprefix("#"))
    return " ".join(row.strip() for row in found if not row.startswith("   "))


def render_table(values: list[Value]) -> str:
    """Return the table in Markdown; a comment that several keys share is in the first of them."""
    rows = ["| value | default | what for |", "|---|---|---|"]
    shown = ""
    for name, default, text in values:
        cell = "" if text == shown else text.replace("|", "\\|")
        rows.append(f"| `{name}` | {f'`{default}`' if default else ''} | {cell} |")
        shown = text
    return "\n".join(rows) + "\n"
