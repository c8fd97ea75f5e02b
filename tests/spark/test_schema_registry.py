"""Schemas that Spark can not use are refused when the column is made; docs/spark-registry.md is run for the rest."""

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from kproxy.spark.schema_registry import ProtobufValue, UnsupportedSchema, from_avro, protobuf_value
from tests.support.schema_registry import schema_registry

_AVRO = '{"type": "record", "name": "Order", "fields": []}'
_OTHER = SchemaReference("Other", "other-value", 1)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"schema_str": "{}", "schema_type": "JSON"}, "version 2 of subject orders-value is JSON, not AVRO"),
        ({"schema_str": _AVRO, "schema_type": "AVRO", "references": [_OTHER]}, "version 2 .* refers to other schemas"),
    ],
)
def test_a_schema_that_can_not_be_decoded_by_is_refused(schema: Mapping[str, Any], why: str) -> None:
    with schema_registry() as url:
        registry = SchemaRegistryClient({"url": url})
        registry.register_schema("orders-value", Schema(_AVRO, "AVRO"))
        registry.register_schema("orders-value", Schema(**schema))
        with pytest.raises(UnsupportedSchema, match=why):
            from_avro("value", registry, "orders-value")


@pytest.mark.parametrize(
    ("header", "indexes"),
    [(b"\0", (0,)), (b"\2\0", (0,)), (b"\2\2", (1,)), (b"\4\2\0", (1, 0)), (b"\2\x80\2", (128,))],
)
def test_the_header_of_a_protobuf_value(header: bytes, indexes: tuple[int, ...]) -> None:
    assert protobuf_value(b"\0\0\0\1\2" + header + b"rest") == ProtobufValue(258, indexes, b"rest")


@pytest.mark.parametrize("value", [b"", b"\0\0\0\0\1", b"\1\0\0\0\1\0", b"\0\0\0\0\1\4\2", b"\0\0\0\0\1\x80"])
def test_a_value_without_the_header_of_a_protobuf_value(value: bytes) -> None:
    with pytest.raises(ValueError, match="header of a schema registry"):
        protobuf_value(value)
