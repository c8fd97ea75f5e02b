"""One mapping of a file, read key by key: every value is checked where it is taken, with its line at hand."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from kproxy.config.config_faults import Faults, Location
from kproxy.config.sources import ConfigError
from kproxy.config.values import suggest
from kproxy.config.variables import expand

_T = TypeVar("_T")

_DURATION = re.compile(r"\d{1,9} (millisecond|second|minute|hour|day)s?")
_NULLS = ("", "~", "null", "Null", "NULL")


class Section:
    """A mapping: keys are read by name, and ``finish`` reports those that were never read."""

    def __init__(self, node: yaml.Node, key: str, faults: Faults, environ: Mapping[str, str]) -> None:
        """``key`` is the section's own dotted name, empty at the top."""
        self.place = _place(node, key)
        self._faults = faults
        self._environ = environ
        self._asked: list[str] = []
        self._nodes: dict[str, tuple[Location, yaml.Node]] = {}
        self._is_mapping = isinstance(node, yaml.MappingNode)
        if not isinstance(node, yaml.MappingNode):
            faults.add(self.place, "must be a mapping, 'key: value' lines")
            return
        for name, value in node.value:
            place = _place(name, self._dotted(str(name.value)))
            if not isinstance(name, yaml.ScalarNode):
                faults.add(place, "must be a plain key, not a list or a mapping")
            elif name.value in self._nodes:
                faults.add(place, "is given twice")
            else:
                self._nodes[name.value] = place, value

    @property
    def names(self) -> list[str]:
        return list(self._nodes)

    def fault(self, text: str, key: str | None = None) -> None:
        """Adds a fault of the section or of one of its keys; not if it is no mapping, which is a fault already."""
        if self._is_mapping:
            self._faults.add(self.place if key is None else self.place_of(key), text)

    def place_of(self, key: str) -> Location:
        """The position of a key; that of the section if the key is missing."""
        return self._nodes[key][0] if key in self._nodes else self.place._replace(key=self._dotted(key))

    def has(self, key: str) -> bool:
        self._ask(key)
        return key in self._nodes

    def is_mapping(self, key: str) -> bool:
        """Whether it is there and has keys of its own."""
        return self.has(key) and isinstance(self._nodes[key][1], yaml.MappingNode)

    def text(self, key: str, default: str | None = None) -> str:
        """A value that is there, or the default; a fault if there is neither."""
        found = self.maybe(key)
        if found is None and default is None and key not in self._nodes:
            self.fault("is missing", key)
        return found if found is not None else default or ""

    def maybe(self, key: str) -> str | None:
        self._ask(key)
        return self._scalar(*self._nodes[key]) if key in self._nodes else None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of values; one value alone is a list of one; empty if the key is missing."""
        self._ask(key)
        if key not in self._nodes:
            return ()
        place, node = self._nodes[key]
        found = [self._scalar(*entry) for entry in _entries(place, node)]
        if not found:
            self.fault("must not be empty", key)
        return tuple(text for text in found if text is not None)

    def number(self, key: str) -> int | None:
        """A whole number from 1 up, or None."""
        return self._parsed(key, _positive)

    def flag(self, key: str) -> bool:
        return bool(self._parsed(key, _truth))

    def duration(self, key: str) -> str:
        """As Spark has it: a number and a unit."""
        self.text(key)
        return self._parsed(key, _duration) or ""

    def mapping(self, key: str) -> dict[str, str]:
        """Free names and values; empty if it is missing."""
        inner = self.section(key)
        return {} if inner is None else {name: inner.text(name) for name in inner.names}

    def section(self, key: str) -> "Section | None":
        self._ask(key)
        return self._inner(*self._nodes[key]) if key in self._nodes else None

    def sections(self, key: str) -> Iterator["Section"]:
        self._ask(key)
        if key in self._nodes:
            place, node = self._nodes[key]
            if not isinstance(node, yaml.SequenceNode):
                self.fault("must be a list, '- ' before each entry", key)
                return
            for entry in _entries(place, node):
                yield self._inner(*entry)

    def finish(self) -> None:
        """Adds a fault for each key that was never read."""
        for name, (place, _) in self._nodes.items():
            if name not in self._asked:
                near = suggest(name, self._asked)
                self._faults.add(place, f"unknown key{near or '; valid: ' + ', '.join(self._asked)}")

    def _ask(self, key: str) -> None:
        if key not in self._asked:
            self._asked.append(key)

    def _inner(self, place: Location, node: yaml.Node) -> "Section":
        return Section(node, place.key, self._faults, self._environ)

    def _dotted(self, key: str) -> str:
        return f"{self.place.key}.{key}" if self.place.key else key

    def _scalar(self, place: Location, node: yaml.Node) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self._faults.add(place, "must be a single value, not a list or a mapping")
            return None
        if node.style is None and node.value in _NULLS:
            self._faults.add(place, "has no value")
            return None
        try:
            found = expand(node.value, self._environ).strip()
        except ValueError as error:
            self._faults.add(place, str(error))
            return None
        if not found:
            self._faults.add(place, "has no value")
            return None
        return found

    def _parsed(self, key: str, parse: Callable[[str], _T]) -> _T | None:
        text = self.maybe(key)
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as error:
            self.fault(f"{text!r} {error}", key)
            return None


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 63:
        raise ValueError("must be a whole number from 1 up")
    return int(text)


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _duration(text: str) -> str:
    if not _DURATION.fullmatch(text):
        raise ValueError("must be a number and milliseconds, seconds, minutes, hours or days, as '5 seconds'")
    return text


def _entries(place: Location, node: yaml.Node) -> list[tuple[Location, Any]]:
    if not isinstance(node, yaml.SequenceNode):
        return [(place, node)]
    return [(_place(entry, f"{place.key}[{index}]"), entry) for index, entry in enumerate(node.value)]


def _place(node: yaml.Node, key: str) -> Location:
    return Location(node.start_mark.line + 1, key)


def read_list(file: Path, key: str, missing: str, read: Callable[[Section], _T]) -> list[_T]:
    """What ``read`` makes of each entry of a file's one list; ConfigError with one line for each fault."""
    faults = Faults(str(file))
    top = top_of(file, faults, {})
    found = []
    for entry in top.sections(key):
        found.append(read(entry))
        entry.finish()
    if not top.has(key):
        top.fault(f"is missing: {missing}", key)
    top.finish()
    faults.check()
    return found


def top_of(file: Path, faults: Faults, environ: Mapping[str, str]) -> Section:
    """The mapping at the top of a file; ConfigError if it can't be read, or is no YAML."""
    return Section(_root(file), "", faults, environ)


def _root(file: Path) -> yaml.Node:
    try:
        node: yaml.Node | None = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise ConfigError([f"cannot read {file}: {why}"]) from None
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError([f"{file}{line}: {error.problem or error.context}"]) from None
    except yaml.YAMLError as error:
        raise ConfigError([f"{file}: {str(error).splitlines()[0]}"]) from None
    if node is None:
        raise ConfigError([f"{file}: is empty"])
    return node
