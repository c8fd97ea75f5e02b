"""Random messages made from the field tables, with the JSON that Kafka's own converters take for the same values."""

import base64
import importlib
import random
from collections.abc import Iterator
from typing import Any

from kproxy.codec.messages import Message
from tools.codec_tables import Field, TableParser
from tools.codec_tables import Message as Table
from tools.generate_codec import SCHEMA

TABLES: dict[str, tuple[str, Table]] = {
    table.name: (path.stem, table)
    for path in sorted(SCHEMA.glob("*.txt"))
    if path.name != "errors.txt"
    for table in TableParser(path).messages()
}
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
WORDS = ["", "a", "topic-1", "naïve", "日本語", "🦀", "x" * 127, "y" * 300]


def message_class(name: str) -> Any:
    """The generated class of a message."""
    stem, _ = TABLES[name]
    return getattr(importlib.import_module(f"kproxy.codec._generated.{stem}"), name)


def versions(name: str) -> range:
    """All versions of a message."""
    low, high = TABLES[name][1].versions
    return range(low, high + 1)


def all_versions() -> Iterator[tuple[str, int]]:
    """Every message in every version."""
    for name in TABLES:
        for version in versions(name):
            yield name, version


class Sampler:
    """Makes one message after the other from a seed; ``nulls`` and ``tags`` allow nulls and unknown tagged fields."""

    def __init__(self, name: str, version: int, seed: int, *, nulls: bool = True, tags: bool = False) -> None:
        self.name, self.version, self.nulls, self.tags = name, version, nulls, tags
        self.random = random.Random(f"{name} {version} {seed}")
        stem, self.table = TABLES[name]
        self.module = importlib.import_module(f"kproxy.codec._generated.{stem}")

    def message(self) -> tuple[Message, dict[str, Any]]:
        """A message and its JSON."""
        return self.struct(self.name)

    def struct(self, name: str) -> tuple[Any, dict[str, Any]]:
        """A struct of the message and its JSON; fields that the version lacks keep their defaults."""
        values: dict[str, Any] = {}
        json: dict[str, Any] = {}
        for f in self.table.struct(name).fields:
            left_out = f.tag is not None and self.random.random() < 0.3
            if f.versions[0] <= self.version <= f.versions[1] and not left_out:
                key = f.name[0].lower() + f.name[1:]
                values[f.attribute], json[key] = self.field(f)
        if self.tags and self.version >= self.table.flexible and self.random.random() < 0.5:
            values["unknown_tags"] = {self.random.choice([70, 200, 70_000]): self.random.randbytes(5), 65: b""}
        return getattr(self.module, self.table.class_name(name))(**values), json

    def field(self, f: Field) -> tuple[Any, Any]:
        """A value and its JSON."""
        if self.nulls and f.is_nullable(self.version) and self.random.random() < 0.3:
            return None, None
        if not f.array:
            return self.value(f.base)
        most = 140 if f.base.startswith("int") and self.random.random() < 0.1 else 3
        pairs = [self.value(f.base) for _ in range(self.random.randint(0, most))]
        return [a for a, _ in pairs], [b for _, b in pairs]

    def value(self, base: str) -> tuple[Any, Any]:
        """A value of a type, not null, and its JSON."""
        if base in BITS or base == "uint16":
            low, high = (0, 65535) if base == "uint16" else (-(2 ** (BITS[base] - 1)), 2 ** (BITS[base] - 1) - 1)
            number = self.random.choice([low, high, 0, 1, self.random.randint(low, high)])
            return number, number
        if base == "bool":
            flag = self.random.random() < 0.5
            return flag, flag
        if base == "float64":
            real = self.random.uniform(-1e9, 1e9)
            return real, real
        if base == "string":
            text = self.random.choice(WORDS)
            return text, text
        if base == "uuid":
            raw = self.random.randbytes(16)
            return raw, base64.urlsafe_b64encode(raw).decode().rstrip("=")
        if base in ("bytes", "records"):
            data = self.random.randbytes(self.random.choice([0, 1, 20, 200]))
            return data, base64.b64encode(data).decode()
        return self.struct(base)
