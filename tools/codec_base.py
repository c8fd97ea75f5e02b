"""What reading and writing a struct have in common: conditions on the version, and fields that are packed together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.codec_tables import FIXED, NEVER, Range, snake

if TYPE_CHECKING:
    from tools.codec_tables import Field, Message, Struct

PYTHON = {"bool": "bool", "float64": "float", "uuid": "bytes", "string": "str", "bytes": "bytes"}


def default_of(message: Message, f: Field) -> str:
    """The default of a field as a Python expression."""
    if f.default == "null" or (f.base == "records" and not f.array):
        return "None"
    if f.array:
        return "[]"
    simple = {"string": repr(f.default), "bytes": 'b""', "uuid": "ZERO_UUID", "bool": str(f.default == "true")}
    if f.base in simple:
        return simple[f.base]
    if f.base == "float64":
        return str(float(f.default or 0))
    return (f.default or "0") if f.base in FIXED else f"{message.class_name(f.base)}()"


def type_of(message: Message, f: Field) -> str:
    """The Python type of a field."""
    if f.base == "records":
        return "memoryview | bytes | None"
    plain = PYTHON.get(f.base) or ("int" if f.base in FIXED else message.class_name(f.base))
    text = f"list[{plain}]" if f.array else plain
    return f"{text} | None" if f.ever_nullable or f.default == "null" else text


def suffix_of(code: str) -> str:
    """What the name of the packer for a ``struct`` format ends in."""
    return code.replace("16s", "u").replace("?", "t")


class StructCode:
    """Generates code for one struct; notes in ``formats`` what must be packed."""

    def __init__(self, message: Message, struct: Struct, formats: set[str]) -> None:
        self.message, self.struct, self.formats = message, struct, formats
        self.name = message.class_name(struct.name)
        self.top = struct.name == message.name

    # Conditions

    def when(self, versions: Range) -> str:
        """The condition for ``versions`` among those of the message; empty if it always holds."""
        low, high = self.message.versions
        at_least, at_most = versions[0] > low, versions[1] < high
        if at_least and at_most:
            one = versions[0] == versions[1]
            return f"version == {versions[0]}" if one else f"{versions[0]} <= version <= {versions[1]}"
        return f"version >= {versions[0]}" if at_least else f"version <= {versions[1]}" if at_most else ""

    def holds(self, versions: Range, within: Range) -> str:
        """The condition for ``versions``, given ``within``: True, False or an expression."""
        low, high = max(versions[0], within[0]), min(versions[1], within[1])
        if low > high:
            return "False"
        if (low, high) == within:
            return "True"
        if high == within[1]:
            return f"version >= {low}"
        return f"version <= {high}" if low == within[0] else f"{low} <= version <= {high}"

    @property
    def flexible(self) -> Range:
        """The flexible versions."""
        return self.message.flexible, NEVER

    def choose(self, f: Field, verb: str, kind: str, arguments: str = "") -> str:
        """The reader or writer of a string, of bytes or of records, by version; called if ``arguments`` are given."""
        chosen: list[tuple[int, str]] = []
        for version in range(f.versions[0], f.versions[1] + 1):
            compact = "compact_" if version >= self.message.flexible or f.tag is not None else ""
            name = f"{verb}_{compact}{'nullable_' if f.is_nullable(version) else ''}{kind}{arguments}"
            if not chosen or chosen[-1][1] != name:
                chosen.append((version, name))
        text = chosen[0][1]
        for version, name in chosen[1:]:
            text = f"{name} if version >= {version} else {text}"
        return text

    def function(self, verb: str, f: Field) -> str:
        """The function that reads or writes the struct that ``f`` holds."""
        return f"_{verb}_{snake(self.message.class_name(f.base))}"

    def compact(self, f: Field) -> str:
        """Whether the array ``f`` is compact, as an expression."""
        return "True" if f.tag is not None else self.holds(self.flexible, f.versions)

    def array_options(self, f: Field) -> str:
        """The arguments ``compact`` and ``nullable`` of an array."""
        return f"{self.compact(f)}, {self.holds(f.nullable, f.versions)}"

    def groups(self) -> list[list[Field]]:
        """The untagged fields in wire order; neighbours of fixed width and equal versions stand together."""
        groups: list[list[Field]] = []
        for f in self.struct.fields:
            if f.tag is not None:
                continue
            last = groups[-1][-1] if groups else None
            if last is not None and last.fixed and f.fixed and last.versions == f.versions:
                groups[-1].append(f)
            else:
                groups.append([f])
        return groups

    def packing(self, fields: list[Field]) -> tuple[str, int]:
        """The name suffix of the ``Struct`` for ``fields``, which is noted for the module, and its size."""
        code = "".join(FIXED[f.base][0] for f in fields)
        self.formats.add(code)
        return suffix_of(code), sum(FIXED[f.base][1] for f in fields)
