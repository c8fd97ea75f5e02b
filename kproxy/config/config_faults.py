"""The faults of a file of rules or of a pipeline: collected, and reported all at once."""

from dataclasses import dataclass, field
from typing import NamedTuple

from kproxy.config.sources import ConfigError


class Location(NamedTuple):
    """A position in the file: line (the first is 1) and dotted key."""

    line: int
    key: str


class Fault(NamedTuple):
    """One thing to correct."""

    place: Location
    text: str


class FileError(ConfigError):
    """The file can't be used; ``problems`` has one line for each fault, ``faults`` the same in parts."""

    def __init__(self, file: str, faults: list[Fault]) -> None:
        super().__init__([f"{file}:{place.line}: {_key(place)}{text}" for place, text in faults])
        self.file = file
        self.faults = faults


@dataclass
class Faults:
    """Collects faults, so that a file is read to its end."""

    file: str
    found: list[Fault] = field(default_factory=list)

    def add(self, place: Location, text: str) -> None:
        self.found.append(Fault(place, text))

    def check(self) -> None:
        """Raises FileError if there are any, in the order of the file."""
        if self.found:
            raise FileError(self.file, sorted(dict.fromkeys(self.found), key=lambda fault: fault.place.line))


def _key(place: Location) -> str:
    return f"{place.key}: " if place.key else ""
