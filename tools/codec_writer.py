"""Generates the function that writes a struct."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.codec_base import StructCode, default_of
from tools.codec_tables import FIXED, snake

if TYPE_CHECKING:
    from tools.codec_tables import Field, Message


def differs(message: Message, f: Field, value: str) -> str:
    """The condition under which ``value`` is not the field's default."""
    default = default_of(message, f)
    if default == "None":
        return f"{value} is not None"
    if default.endswith("()"):
        return f"{value} != _default_{snake(default[:-2])}"
    if default in ("True", "False"):
        return f"not {value}" if default == "True" else value
    return f"{value} != {default}"


class WriterCode(StructCode):
    """The function that writes a struct."""

    def write_group(self, fields: list[Field], value: str, out: str = "out") -> list[str]:
        """Statements that append a group."""
        f = fields[0]
        if f.fixed:
            suffix, _ = self.packing(fields)
            sources = [(x.base, f"{value}.{x.attribute}") for x in fields]
            values = (f"uuid_bytes({source})" if base == "uuid" else source for base, source in sources)
            return [f"{out} += _pack_{suffix}({', '.join(values)})"]
        source = f"{value}.{f.attribute}"
        if f.array:
            return [self.write_array(f, source, out)]
        if f.base in ("string", "bytes", "records"):
            writer = self.choose(f, "write", "bytes" if f.base == "records" else f.base)
            return [f"({writer})({out}, {source})" if " " in writer else f"{writer}({out}, {source})"]
        if f.ever_nullable:
            return [f"write_nullable_struct({out}, version, {source}, {self.function('write', f)})"]
        return [f"{self.function('write', f)}({out}, {source}, version)"]

    def write_array(self, f: Field, source: str, out: str) -> str:
        """The statement that appends an array."""
        items = f"write_length({out}, {source}, {self.array_options(f)})"
        if f.base in FIXED:
            return f'write_ints({out}, "{FIXED[f.base][0]}", {items})'
        if f.base == "string":
            return f"write_strings({out}, {items}, {self.compact(f)})"
        return f"write_structs({out}, version, {items}, {self.function('write', f)})"

    def refusal(self, f: Field, value: str) -> list[str]:
        """Statements that refuse a value which the version has no place for."""
        low, high = self.message.versions
        missing = [f"version < {f.versions[0]}"] if f.versions[0] > low else []
        missing += [f"version > {f.versions[1]}"] if f.versions[1] < high else []
        if not missing or f.ignorable:
            return []
        condition = missing[0] if len(missing) == 1 else f"({' or '.join(missing)})"
        return [
            f"if {condition} and {differs(self.message, f, f'{value}.{f.attribute}')}:",
            f'    raise absent("{self.name}.{f.attribute}", version)',
        ]

    def code(self) -> list[str]:
        """The function that writes the struct."""
        value = "self" if self.top else "value"
        lines: list[str] = []
        for group in self.groups():
            condition = self.when(group[0].versions)
            statements = self.write_group(group, value)
            lines += [f"if {condition}:", *(f"    {s}" for s in statements)] if condition else statements
        for f in self.struct.fields:
            lines += self.refusal(f, value)
        lines += self.write_tags([f for f in self.struct.fields if f.tag is not None], value)
        if self.top:
            head = "def _write(self, out: bytearray, version: int) -> None:"
        else:
            head = f"def _write_{snake(self.name)}(out: bytearray, value: {self.name}, version: int) -> None:"
        return [head, *(f"    {s}" for s in lines)]

    def write_tags(self, tagged: list[Field], value: str) -> list[str]:
        """Statements that append the tagged fields."""
        if self.message.flexible > self.message.versions[1]:
            return []
        inner = [f"tags = dict({value}.unknown_tags)"] if tagged else []
        within = (max(self.message.versions[0], self.message.flexible), self.message.versions[1])
        for f in sorted(tagged, key=lambda x: x.tag or 0):
            condition = self.holds(f.versions, within)
            prefix = "" if condition == "True" else f"{condition} and "
            inner += [
                f"if {prefix}{differs(self.message, f, f'{value}.{f.attribute}')}:",
                "    raw = bytearray()",
                *(f"    {s}" for s in self.write_group([f], value, "raw")),
                f"    tags[{f.tag}] = bytes(raw)",
            ]
        inner.append("write_tags(out, tags)" if tagged else f"write_tags(out, {value}.unknown_tags)")
        condition = self.when(self.flexible)
        return [f"if {condition}:", *(f"    {s}" for s in inner)] if condition else inner
