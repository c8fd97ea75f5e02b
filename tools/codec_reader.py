"""Generates the function that reads a struct."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.codec_base import StructCode, default_of, type_of
from tools.codec_tables import FIXED, snake

if TYPE_CHECKING:
    from tools.codec_tables import Field


#: What each reader takes: where, in which version, and what the message may cost.
PARAMETERS = "buf: Buffer, pos: int, version: int, budget: RequestBudget"


class ReaderCode(StructCode):
    """The function that reads a struct."""

    def read_group(self, fields: list[Field]) -> list[str]:
        """Statements that read a group into local variables."""
        f = fields[0]
        if f.fixed:
            suffix, size = self.packing(fields)
            targets = ", ".join(x.attribute for x in fields)
            targets = f"({targets},)" if len(fields) == 1 else targets
            return [f"{targets} = _unpack_{suffix}(buf, pos)", f"pos += {size}"]
        if f.array:
            return self.read_array(f)
        if f.base in ("string", "bytes", "records"):
            return [f"{f.attribute}, pos = {self.choose(f, 'read', f.base, '(buf, pos)')}"]
        if f.ever_nullable:
            return [f"{f.attribute}, pos = read_nullable_struct(buf, pos, version, budget, {self.function('read', f)})"]
        return [f"{f.attribute}, pos = {self.function('read', f)}(buf, pos, version, budget)"]

    def read_elements(self, f: Field, buf: str, pos: str) -> str:
        """The call that reads ``length`` elements."""
        if f.base in FIXED:
            return f'read_ints({buf}, {pos}, "{FIXED[f.base][0]}", length, budget)'
        if f.base == "string":
            return f"read_strings({buf}, {pos}, {self.compact(f)}, length, budget)"
        return f"read_structs({buf}, {pos}, version, length, budget, {self.function('read', f)})"

    def read_array(self, f: Field) -> list[str]:
        """Statements that read an array."""
        lines = [f"length, pos = read_length(buf, pos, {self.array_options(f)}, {self.message.least(f)})"]
        call = f"{f.attribute}, pos = {self.read_elements(f, 'buf', 'pos')}"
        if f.ever_nullable:
            return [*lines, f"{f.attribute} = None", "if length >= 0:", f"    {call}"]
        return [*lines, call]

    def read_tagged(self, f: Field) -> list[str]:
        """Statements that take a known tagged field out of ``unknown_tags``."""
        if f.fixed:
            suffix, size = self.packing([f])
            inner = [f"{f.attribute} = whole((_unpack_{suffix}(raw, 0)[0], {size}), raw)"]
        elif f.array:
            if f.ever_nullable:
                raise ValueError(f"{f.name}: tagged nullable arrays are not supported")
            inner = [
                f"length, start = read_length(raw, 0, {self.array_options(f)}, {self.message.least(f)})",
                f"{f.attribute} = whole({self.read_elements(f, 'raw', 'start')}, raw)",
            ]
        elif f.base in ("string", "bytes"):
            inner = [f"{f.attribute} = whole({self.choose(f, 'read', f.base, '(raw, 0)')}, raw)"]
        elif f.ever_nullable:
            raise ValueError(f"{f.name}: tagged nullable structs are not supported")
        else:
            inner = [f"{f.attribute} = whole({self.function('read', f)}(raw, 0, version, budget), raw)"]
        within = (max(self.message.versions[0], self.message.flexible), self.message.versions[1])
        condition = self.holds(f.versions, within)
        prefix = "" if condition == "True" else f"{condition} and "
        return [f"if {prefix}(raw := unknown_tags.pop({f.tag}, None)) is not None:", *(f"    {s}" for s in inner)]

    def code(self) -> list[str]:
        """The function that reads the struct."""
        lines: list[str] = []
        for group in self.groups():
            condition = self.when(group[0].versions)
            statements = self.read_group(group)
            for f in group:
                if condition:
                    lines.append(f"{f.attribute}: {type_of(self.message, f)} = {default_of(self.message, f)}")
                elif f.ever_nullable or f.base == "records":
                    lines.append(f"{f.attribute}: {type_of(self.message, f)}")
            lines += [f"if {condition}:", *(f"    {s}" for s in statements)] if condition else statements
        tagged = [f for f in self.struct.fields if f.tag is not None]
        for f in tagged:
            lines.append(f"{f.attribute}: {type_of(self.message, f)} = {default_of(self.message, f)}")
        lines += self.read_tags(tagged)
        attributes = ", ".join([*(f.attribute for f in self.struct.fields), "unknown_tags"])
        if self.top:
            head = ["@classmethod", f"def _read(cls, {PARAMETERS}) -> tuple[Self, int]:"]
            return [*head, *(f"    {s}" for s in lines), f"    return cls({attributes}), pos"]
        head = [f"def _read_{snake(self.name)}({PARAMETERS}) -> tuple[{self.name}, int]:"]
        return [*head, *(f"    {s}" for s in lines), f"    return {self.name}({attributes}), pos"]

    def read_tags(self, tagged: list[Field]) -> list[str]:
        """Statements that read the tagged fields."""
        if self.message.flexible > self.message.versions[1]:
            return ["unknown_tags: dict[int, bytes] = {}"]
        inner = ["unknown_tags, pos = read_tags(buf, pos, budget)"]
        if tagged:
            inner.append("if unknown_tags:")
            for f in tagged:
                inner += (f"    {s}" for s in self.read_tagged(f))
        condition = self.when(self.flexible)
        if not condition:
            return inner
        return ["unknown_tags: dict[int, bytes] = {}", f"if {condition}:", *(f"    {s}" for s in inner)]
