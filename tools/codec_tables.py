"""The field tables under ``schema/``: how they are written, and what they say."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NEVER = 32767
FIXED = {
    "bool": ("?", 1), "int8": ("b", 1), "int16": ("h", 2), "uint16": ("H", 2), "int32": ("i", 4), "int64": ("q", 8),
    "float64": ("d", 8), "uuid": ("16s", 16),
}  # fmt: skip
Range = tuple[int, int]


def snake(name: str) -> str:
    """``OffsetCommit`` as ``offset_commit``."""
    text = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    return text + "_" if keyword.iskeyword(text) else text


def parse_range(text: str, highest: int) -> Range:
    """``3+``, ``0-2``, ``1`` or ``none`` as an inclusive pair; open ends close at ``highest``."""
    if text == "none":
        return NEVER, NEVER - 1
    if text.endswith("+"):
        return int(text[:-1]), highest
    low, _, high = text.partition("-")
    return int(low), int(high or low)


@dataclass
class Field:
    """One field of a struct; ``base`` is the type without the array mark."""

    name: str
    base: str
    array: bool
    versions: Range
    nullable: Range = (NEVER, NEVER - 1)
    tag: int | None = None
    default: str = ""
    ignorable: bool = False

    @property
    def attribute(self) -> str:
        """The name in Python."""
        return snake(self.name)

    @property
    def fixed(self) -> bool:
        """Whether it always takes the same number of bytes."""
        return not self.array and self.base in FIXED

    def is_nullable(self, version: int) -> bool:
        """Whether null is allowed in ``version``."""
        return self.nullable[0] <= version <= self.nullable[1]

    @property
    def ever_nullable(self) -> bool:
        """Whether some version allows null."""
        return self.nullable[0] <= self.nullable[1]


@dataclass
class Struct:
    """A named list of fields."""

    name: str
    fields: list[Field] = field(default_factory=list)


@dataclass
class Message:
    """One message: ``structs`` in dependency order, the message itself last."""

    name: str
    api_key: int
    versions: Range
    flexible: int
    structs: list[Struct] = field(default_factory=list)

    def class_name(self, struct: str) -> str:
        """The Python class of a struct of this message."""
        return struct if struct.startswith(self.name) else self.name + struct

    def struct(self, name: str) -> Struct:
        """The struct called ``name``."""
        return next(s for s in self.structs if s.name == name)

    def least(self, f: Field) -> int:
        """The fewest bytes that one element of the array ``f`` takes in any version."""
        low, high = max(f.versions[0], self.versions[0]), min(f.versions[1], self.versions[1])
        return min(self.element_size(f.base, v) for v in range(low, high + 1))

    def element_size(self, base: str, version: int) -> int:
        """The fewest bytes that a value of the type takes in ``version``."""
        compact = version >= self.flexible
        if base in FIXED:
            return FIXED[base][1]
        if base == "string":
            return 1 if compact else 2
        if base in ("bytes", "records"):
            return 1 if compact else 4
        size = 1 if compact else 0
        for f in self.struct(base).fields:
            if f.tag is None and f.versions[0] <= version <= f.versions[1]:
                size += self.field_size(f, version)
        return size

    def field_size(self, f: Field, version: int) -> int:
        """The fewest bytes that a field takes in a version that has it."""
        if f.array:
            return 1 if version >= self.flexible else 4
        is_struct = f.base not in FIXED and f.base not in ("string", "bytes", "records")
        return 1 if is_struct and f.is_nullable(version) else self.element_size(f.base, version)


def parse_field(words: list[str], highest: int) -> Field:
    """One line of a table."""
    name, kind, versions, *options = words
    f = Field(name, kind.removeprefix("[]"), kind.startswith("[]"), parse_range(versions, highest))
    if f.array and f.base in ("bool", "uint16", "float64", "uuid", "bytes", "records"):
        raise ValueError(f"{name}: arrays of {f.base} are not supported")
    for option in options:
        key, _, value = option.partition("=")
        if key == "nullable":
            f.nullable = parse_range(value, highest)
        elif key == "tagged" and parse_range(value, highest) != f.versions:
            raise ValueError(f"{name} is tagged in some versions only")
        elif key == "tag":
            f.tag = int(value)
        elif key == "default":
            f.default = value
        elif key == "ignorable":
            f.ignorable = True
    return f


class TableParser:
    """Reads one table: a head line, then one section for each message, nested by two blanks."""

    def __init__(self, path: Path) -> None:
        self.lines = [(len(s) - len(s.lstrip()), s.split()) for s in path.read_text().splitlines()]
        head = self.lines[0][1]
        self.api_key = int(head[1]) if head[0] == "api" else -1
        self.name = head[-1]
        self.at = 1

    def messages(self) -> list[Message]:
        """The messages of the table, in its order."""
        found = []
        while self.at < len(self.lines):
            kind, versions, flexible = self.lines[self.at][1]
            low, high = parse_range(versions, 0)
            name = self.name + ("" if kind == "data" else kind.capitalize())
            message = Message(name, self.api_key, (low, high), parse_range(flexible[9:], high)[0])
            self.at += 1
            self.struct(message, Struct(name), 2)
            message.structs = in_dependency_order(message)
            found.append(message)
        return found

    def struct(self, message: Message, struct: Struct, indent: int) -> None:
        """Reads the fields at ``indent`` into ``struct``, and the structs nested in them into ``message``."""
        message.structs.append(struct)
        while self.at < len(self.lines) and self.lines[self.at][0] == indent:
            words = self.lines[self.at][1]
            self.at += 1
            if words[0] == "struct":
                self.struct(message, Struct(words[1]), indent + 2)
                continue
            f = parse_field(words, message.versions[1])
            struct.fields.append(f)
            if self.at < len(self.lines) and self.lines[self.at][0] == indent + 2:
                self.struct(message, Struct(f.base), indent + 2)


def in_dependency_order(message: Message) -> list[Struct]:
    """The structs of a message, each after those that it contains."""
    known = {s.name: s for s in message.structs}
    done: dict[str, Struct] = {}

    def visit(struct: Struct) -> None:
        for f in struct.fields:
            if f.base in known and f.base not in done:
                visit(known[f.base])
        done[struct.name] = struct

    visit(known[message.name])
    return list(done.values())
