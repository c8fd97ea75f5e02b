"""Values that Confluent's serializers wrote: columns that decode them by the schemas of a registry.

Such a value begins with a header: the byte 0 and the id of its schema in 4 bytes. Spark's own functions decode what
follows. The schemas are read from the registry when the column is made, on the driver, and are a part of the plan: a
task asks nobody. So a schema that is registered later needs a restart of the query, which says so.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import RegisteredSchema, SchemaRegistryClient
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

_MAGIC: Final = b"\0"
_ID_BYTES: Final = 4
_HEADER_BYTES: Final = len(_MAGIC) + _ID_BYTES
_LONGEST: Final = 2**31 - 1


class UnsupportedSchema(ValueError):
    """Spark can't decode by this schema; the message says why."""


def from_avro(
    column: "Column | str",
    registry: "SchemaRegistryClient",
    subject: str,
    *,
    version: int | None = None,
    options: Mapping[str, str] | None = None,
) -> "Column":
    """Decodes Avro: each value by the schema with which it was written, and to the fields of one schema.

    ``version`` of ``subject`` has those fields, None: the latest; Avro's rules of schema resolution fill what a value
    lacks. ``options`` are those of Spark's ``from_avro``, which needs the package spark-avro. A value with the id of
    another subject fails the query. UnsupportedSchema, and the errors of the registry's client.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro as decode

    written = [_registered(registry, subject, number) for number in registry.get_versions(subject, deleted=True)]
    fields = _registered(registry, subject, version) if version is not None else _latest(registry, subject)
    reading = {**(options or {}), "avroSchema": fields.text}
    value = _column(column)
    cases = f.when(value.isNull(), None)
    for schema in {schema.id: schema for schema in written}.values():
        cases = cases.when(_header(value) == _header_of(schema.id), decode(_payload(value), schema.text, reading))
    return cases.otherwise(_unknown(value, f"one of subject {subject} when the query started; restart the query"))


def from_json(column: "Column | str", schema: "StructType | str", options: Mapping[str, str] | None = None) -> "Column":
    """Decodes JSON with a header; ``schema`` and ``options`` are those of Spark's ``from_json``.

    Spark does not read JSON Schema, so the registry is not asked: fields that a value lacks are null, and fields that
    ``schema`` lacks are passed over, whichever schema a value was written with. A value without a header fails the
    query.
    """
    from pyspark.sql import functions as f

    value = _column(column)
    has_header = f.substring(value, 1, len(_MAGIC)) == f.lit(_MAGIC)
    decoded = f.from_json(_payload(value).cast("string"), schema, dict(options or {}))
    cases = f.when(value.isNull(), None).when(has_header, decoded)
    return cases.otherwise(_unknown(value, "a header of a schema registry"))


class ProtobufValue(NamedTuple):
    """What Confluent's serializer for Protobuf wrote."""

    schema_id: int
    #: Which message type of the schema's file it is: (0,) the first one, (1, 0) the first one inside the second.
    indexes: tuple[int, ...]
    #: The message, for ``FromString`` of its class.
    message: bytes


def protobuf_value(value: bytes) -> ProtobufValue:
    """Takes the header off one value, for a function of ``mapInPandas``. ValueError if it has none."""
    if value[:1] != _MAGIC or len(value) <= _HEADER_BYTES:
        raise ValueError(f"a value begins with {value[:_HEADER_BYTES].hex()}, which is no header of a schema registry")
    schema_id = int.from_bytes(value[1:_HEADER_BYTES], "big")
    count, at = _signed(value, _HEADER_BYTES)
    if not count:  # a single 0 stands for the first type
        return ProtobufValue(schema_id, (0,), value[at:])
    indexes = []
    for _ in range(count):
        index, at = _signed(value, at)
        indexes.append(index)
    return ProtobufValue(schema_id, tuple(indexes), value[at:])


def _signed(data: bytes, at: int) -> tuple[int, int]:
    """A varint of a zigzag number, and where it ends. ValueError if it is cut off."""
    found = shift = 0
    for end in range(at, len(data)):
        found |= (data[end] & 0x7F) << shift
        shift += 7
        if data[end] < 0x80:
            return found >> 1 ^ -(found & 1), end + 1
    raise ValueError("a value ends within its header of a schema registry")


class _Schema(NamedTuple):
    id: int
    text: str


def _latest(registry: "SchemaRegistryClient", subject: str) -> _Schema:
    return _checked(registry.get_latest_version(subject), subject)


def _registered(registry: "SchemaRegistryClient", subject: str, version: int) -> _Schema:
    """Also one that was deleted: what was written with it may be in the topic."""
    return _checked(registry.get_version(subject, version, deleted=True), subject)


def _checked(found: "RegisteredSchema", subject: str) -> _Schema:
    name, schema = f"version {found.version} of subject {subject}", found.schema
    if schema.schema_type not in (None, "AVRO"):
        raise UnsupportedSchema(f"{name} is {schema.schema_type}, not AVRO")
    if schema.references:
        raise UnsupportedSchema(f"{name} refers to other schemas, which Spark can't look up: register it in one piece")
    if found.schema_id is None or schema.schema_str is None:
        raise UnsupportedSchema(f"{name}: the registry names no id or no text of it")
    return _Schema(found.schema_id, schema.schema_str)


def _column(given: "Column | str") -> "Column":
    from pyspark.sql import functions as f

    return f.col(given) if isinstance(given, str) else given


def _header(value: "Column") -> "Column":
    from pyspark.sql import functions as f

    return f.substring(value, 1, _HEADER_BYTES)


def _payload(value: "Column") -> "Column":
    return value.substr(_HEADER_BYTES + 1, _LONGEST)


def _header_of(schema_id: int) -> "Column":
    from pyspark.sql import functions as f

    return f.lit(_MAGIC + schema_id.to_bytes(_ID_BYTES, "big"))


def _unknown(value: "Column", wanted: str) -> "Column":
    from pyspark.sql import functions as f

    return f.raise_error(
        f.concat(f.lit("a value begins with "), f.hex(_header(value)), f.lit(f", which is not {wanted}"))
    )
