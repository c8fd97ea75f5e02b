"""The small part of JSON Schema that the control API needs: the same table checks requests and is shown in OpenAPI.

Our own, because libraries report the first fault only, or in words for programmers; a response here names all of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

Schema = Mapping[str, Any]

_TYPES: Mapping[str, type | tuple[type, ...]] = MappingProxyType(
    {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
)


def an_object(
    properties: Schema,
    description: str = "",
    *,
    required: Sequence[str] | None = None,
    closed: bool = False,
    **more: Any,
) -> Schema:
    """The schema of an object: all fields are always there unless ``required`` names those; ``closed``: no others."""
    found: dict[str, Any] = {"type": "object"} | ({"description": description} if description else {})
    found |= {"additionalProperties": False} if closed else {}
    names = list(properties) if required is None else list(required)
    return found | ({"required": names} if names else {}) | {"properties": properties} | more


def list_of(items: Schema, description: str = "") -> Schema:
    """The schema of an array."""
    return {"type": "array", "items": items} | ({"description": description} if description else {})


def faults(value: object, schema: Schema, name: str = "the body") -> Iterator[str]:
    """One sentence for each rule that a value breaks; nothing if it is as the schema says."""
    wanted = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    kind = next((kind for kind in wanted if _is(value, kind)), None)
    if kind is None:
        yield f"{name} must be {' or '.join(wanted)}"
    elif kind in _RULES:
        yield from _RULES[kind](value, schema, name)


def _is(value: object, kind: str) -> bool:
    # True and False are integers to Python, not to JSON.
    return isinstance(value, _TYPES[kind]) and (kind == "boolean") == isinstance(value, bool)


def _object(value: dict[str, Any], schema: Schema, name: str) -> Iterator[str]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for key, inner in value.items():
        if key in properties:
            yield from faults(inner, properties[key], key)
        elif isinstance(others, Mapping):
            yield from faults(inner, others, key)
        else:
            yield f"{key!a} is none of the fields: {', '.join(properties) or 'there are none'}"
    yield from (f"{key} is missing" for key in schema.get("required", ()) if key not in value)
    choices = [choice["required"] for choice in schema.get("anyOf", ())]
    if choices and not any(all(key in value for key in keys) for keys in choices):
        yield f"one of {', '.join(key for keys in choices for key in keys)} must be given"


def _array(value: list[Any], schema: Schema, name: str) -> Iterator[str]:
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield f"{name} must have at most {schema['maxItems']} entries"
        return
    for index, inner in enumerate(value):
        yield from faults(inner, schema["items"], f"{name}[{index}]")


def _string(value: str, schema: Schema, name: str) -> Iterator[str]:
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength", len(value))
    if not shortest <= len(value) <= longest:
        yield f"{name} must have {shortest} to {longest} characters"
    if any("\ud800" <= char <= "\udfff" for char in value):
        yield f"{name} has half a surrogate pair, which is no character"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{name} must be one of {', '.join(schema['enum'])}"


def _integer(value: int, schema: Schema, name: str) -> Iterator[str]:
    lowest, highest = schema.get("minimum", value), schema.get("maximum", value)
    if not lowest <= value <= highest:
        yield f"{name} must be a whole number from {lowest} to {highest}"


_RULES: Mapping[str, Callable[[Any, Schema, str], Iterator[str]]] = MappingProxyType(
    {"object": _object, "array": _array, "string": _string, "integer": _integer}
)
