"""Well-formed requests of every API in every version, and such with one field that is wrong."""

import importlib
from random import Random
from typing import Any, Final

import crc32c

from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import Message
from tools.codec_tables import Field, TableParser
from tools.codec_tables import Message as Table
from tools.generate_codec import SCHEMA

#: By the name of a message, its module and its table.
MESSAGES: Final[dict[str, tuple[str, Table]]] = {
    table.name: (path.stem, table)
    for path in sorted(SCHEMA.rglob("*.txt"))
    if path.name != "errors.txt"
    for table in TableParser(path).messages()
}
#: The same of requests alone.
TABLES: Final = {name: found for name, found in MESSAGES.items() if name.endswith("Request")}
_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_CRC_AT: Final = 17
_CHECKED_AT: Final = 21
_BATCH: Final = bytes(build_batch([Record(0, 1_700_000_000_000, None, b"hostile", ())]))
_STRINGS: Final = {"topic": "t", "group": "group", "member": "member", "transactional": "tx", "host": "127.0.0.1"}
#: What honest clients say, by a part of the field's name.
_NUMBERS: Final = {"timeout": 1000, "max_wait": 10, "max_bytes": 1 << 20, "isolation": 0, "acks": -1, "replica_id": -1}
_HOSTILE_STRINGS: Final = ("", "x" * 250, "y" * 32_767, "\0", "\x1b[31m", "../..", "__kproxy_state", "\U0001f980")


class Samples:
    """Messages from a seed: the same seed gives the same messages."""

    def __init__(self, random: Random) -> None:
        """``random`` decides all."""
        self._random = random

    def well_formed(self, name: str, version: int) -> Message:
        """A message whose fields all have values as honest clients and brokers send them."""
        message: Message = self._struct(name, MESSAGES[name][1], name, version)
        return message

    def one_field_wrong(self, name: str, version: int) -> Message:
        """As ``well_formed`` but for one field, of any depth."""
        message = self.well_formed(name, version)
        places = list(_places(message, MESSAGES[name][1], name, version))
        if places:
            owner, field = self._random.choice(places)
            setattr(owner, field.attribute, self._wrong(field, getattr(owner, field.attribute), version))
        return message

    def _struct(self, name: str, table: Table, message: str, version: int) -> Any:
        module = importlib.import_module(f"kproxy.codec._generated.{MESSAGES[message][0]}")
        values = {
            field.attribute: self._field(field, table, message, version)
            for field in table.struct(name).fields
            if field.versions[0] <= version <= field.versions[1] and (field.tag is None or self._random.random() < 0.5)
        }
        return getattr(module, table.class_name(name))(**values)

    def _field(self, field: Field, table: Table, message: str, version: int) -> Any:
        if field.is_nullable(version) and self._random.random() < 0.2:
            return None
        if not field.array:
            return self._value(field, table, message, version)
        return [self._value(field, table, message, version) for _ in range(self._random.choice([0, 1, 1, 1, 2]))]

    def _value(self, field: Field, table: Table, message: str, version: int) -> Any:
        base, attribute = field.base, field.attribute
        if base in _BITS or base == "uint16":
            known = next((value for part, value in _NUMBERS.items() if part in attribute), None)
            return self._random.choice([0, 0, 1]) if known is None else known
        if base == "string":
            return next((text for part, text in _STRINGS.items() if part in attribute), "t")
        simple = {"bool": False, "float64": 1.0, "uuid": bytes(16), "bytes": b"data", "records": _BATCH}
        return simple[base] if base in simple else self._struct(base, table, message, version)

    def _wrong(self, field: Field, value: Any, version: int) -> Any:
        if field.is_nullable(version) and self._random.random() < 0.2:
            return None
        if field.array:
            return list(value or []) * self._random.choice([0, 2, 100])
        return self._wrong_value(field)

    def _wrong_value(self, field: Field) -> Any:
        chance = self._random
        if field.base in _BITS:
            high = 2 ** (_BITS[field.base] - 1)
            return chance.choice([-high, high - 1, -1, 2, chance.randint(-high, high - 1)])
        if field.base == "string":
            return chance.choice(_HOSTILE_STRINGS)
        if field.base in ("bytes", "records"):
            cut = chance.randrange(len(_BATCH))
            return chance.choice([b"", _BATCH[:cut], _BATCH * 3, chance.randbytes(200), self._damaged()])
        simple = {"bool": True, "float64": float("nan"), "uuid": chance.randbytes(16), "uint16": 65_535}
        return simple[field.base]

    def _damaged(self) -> bytes:
        """A batch of which one bit is wrong; in half of them the checksum is right all the same."""
        data = bytearray(_BATCH)
        data[self._random.randrange(12, len(data))] ^= 1 << self._random.randrange(8)
        if self._random.random() < 0.5:
            data[_CRC_AT:_CHECKED_AT] = crc32c.crc32c(data[_CHECKED_AT:]).to_bytes(4, "big")
        return bytes(data)


def _places(value: Any, table: Table, name: str, version: int) -> list[tuple[Any, Field]]:
    """Each field of a message that its version has, with the struct that it is in; structs themselves are left out."""
    found: list[tuple[Any, Field]] = []
    for field in table.struct(name).fields:
        if not field.versions[0] <= version <= field.versions[1]:
            continue
        held = getattr(value, field.attribute)
        structs = [one for one in (held if isinstance(held, list) else [held]) if hasattr(one, "unknown_tags")]
        if field.array or (held is not None and not structs):
            found.append((value, field))
        for one in structs:
            found += _places(one, table, field.base, version)
    return found
