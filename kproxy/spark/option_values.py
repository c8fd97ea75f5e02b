"""Values of options: one that is not a number, a choice or JSON raises an error that names the option."""

import json
from collections.abc import Mapping
from typing import Any, Final

from kproxy.config.values import parse_address, suggest
from kproxy.proxy.routing import Address
from kproxy.spark.kafka_cluster import TopicPartition
from kproxy.spark.spark_errors import OptionError

_OFFSETS_FORM: Final = '{"topic": {"0": 23, "1": 45}}'
_TOPICS_FORM: Final = '{"topic": [0, 1]}'


def boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    """True or false, in any case. Raises OptionError."""
    text = given.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name}: {text!r} is neither true nor false")
    return text.lower() == "true"


def number(
    given: Mapping[str, str], name: str, default: int | None, *, least: int = 1, most: int | None = None
) -> int | None:
    """A whole number of at least ``least``, and at most ``most``. Raises OptionError."""
    text = given.get(name)
    if text is None:
        return default
    if not text.strip().isdecimal() or int(text) < least or (most is not None and int(text) > most):
        valid = f"of {least} or more" if most is None else f"from {least} to {most}"
        raise OptionError(f"{name}: {text!r} is no whole number {valid}")
    return int(text)


def choice(given: Mapping[str, str], name: str, words: tuple[str, ...], default: str) -> str:
    """One of the words, in any case. Raises OptionError."""
    text = given.get(name, default).lower()
    if text not in words:
        raise OptionError(f"{name}: {given[name]!r} is not valid; valid: {', '.join(words)}")
    return text


def servers(name: str, text: str) -> tuple[Address, ...]:
    """Addresses joined by commas, as kproxy's own options read them; nothing if there are none. Raises OptionError."""
    found = []
    for place in filter(None, (part.strip() for part in text.split(","))):
        try:
            found.append(parse_address(place))
        except ValueError as error:
            raise OptionError(f"{name}: {place!r}: {error}") from None
    return tuple(found)


def offsets_json(name: str, text: str, *, least: int, words: tuple[str, ...] = ()) -> dict[TopicPartition, int]:
    """A number for each partition. Raises OptionError, whose text names the words that may be given instead."""
    found: dict[TopicPartition, int] = {}
    if words and not text.lstrip().startswith(("{", "[")):
        near = suggest(text.strip().lower(), words)
        raise OptionError(f"{name}: {text!r}: valid: {', '.join(words)} or {_OFFSETS_FORM}{near}")
    for topic, partitions in _object(name, text, _OFFSETS_FORM).items():
        if not isinstance(partitions, dict):
            raise OptionError(f"{name}: of topic {topic!r} {partitions!r} is given; valid: {_OFFSETS_FORM}")
        for partition, value in partitions.items():
            if not partition.isdecimal() or type(value) is not int or value < least:
                valid = f"partition and number from {least} on, as in {_OFFSETS_FORM}"
                raise OptionError(f"{name}: topic {topic!r} has {partition!r}: {value!r}; valid: {valid}")
            found[TopicPartition(topic, int(partition))] = value
    return found


def topics_json(name: str, text: str) -> frozenset[TopicPartition]:
    """Some partitions. Raises OptionError."""
    found: set[TopicPartition] = set()
    for topic, partitions in _object(name, text, _TOPICS_FORM).items():
        if not isinstance(partitions, list) or any(type(each) is not int or each < 0 for each in partitions):
            raise OptionError(f"{name}: of topic {topic!r} {partitions!r} is given; valid: {_TOPICS_FORM}")
        found.update(TopicPartition(topic, each) for each in partitions)
    if not found:
        raise OptionError(f"{name} is empty; valid: {_TOPICS_FORM}")
    return frozenset(found)


def _object(name: str, text: str, form: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{name}: {text!r} is no JSON ({error}); valid: {form}") from error
    if not isinstance(found, dict):
        raise OptionError(f"{name}: {text!r} is no JSON object; valid: {form}")
    return found
