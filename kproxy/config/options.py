"""What an option is: the metadata that a field of ``Config`` carries, and the table made of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

from kproxy.config.values import show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kproxy.config.values import Kind

_KEY = "option"
_Value = TypeVar("_Value")


class Change(Enum):
    """When another value takes effect in a kproxy that runs."""

    RESTART = "restart"
    """After a restart."""
    RELOAD = "reload"
    """With a reload, everywhere."""
    NEW_CONNECTIONS = "new connections"
    """With a reload, for connections made from then on."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option in all its spellings.

    ``reason`` says what it is for and why the default is what it is.
    """

    attribute: str
    kind: Kind[Any]
    group: str
    reason: str
    default_text: str
    default_is_text: bool
    """True if the default is worked out, so that its text is a description and no value."""
    required: bool
    change: Change

    @property
    def name(self) -> str:
        """Spelling in a file: ``bootstrap.servers``."""
        return self.attribute.replace("_", ".")

    @property
    def flag(self) -> str:
        """Spelling on the command line: ``--bootstrap-servers``."""
        return f"--{self.attribute.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """Spelling in the environment: ``KPROXY_BOOTSTRAP_SERVERS``."""
        return f"KPROXY_{self.attribute.upper()}"


def describe(
    kind: Kind[Any],
    reason: str,
    *,
    group: str = "",
    default_text: str | None = None,
    change: Change = Change.RESTART,
) -> Mapping[str, tuple[Kind[Any], str, str, str | None, Change]]:
    """Metadata of a field; ``group``: at the first field of each group, ``default_text``: replaces the default."""
    return {_KEY: (kind, reason, group, default_text, change)}


def option(
    default: _Value,
    kind: Kind[_Value],
    reason: str,
    *,
    group: str = "",
    default_text: str | None = None,
    change: Change = Change.RESTART,
) -> _Value:
    """A field of ``Config`` with a default; to a type checker it is the default, as in ``dataclasses.field``."""
    metadata = describe(kind, reason, group=group, default_text=default_text, change=change)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
class OptionGroup:
    """Options that the same parts of kproxy read; no data class itself, because those are compiled on each import."""


def gather(model: type[_Value]) -> type[_Value]:
    """The class with all options of its groups; those of its last base come first."""
    annotations = {}
    for base in reversed(model.__mro__):
        for name, annotation in get_annotations(base).items():
            annotations[name] = annotation
            if name in base.__dict__:
                setattr(model, name, base.__dict__[name])
    model.__annotations__ = annotations
    return model


def options(model: type[Any]) -> dict[str, Option]:
    """The options of a dataclass by dotted name, in the order of its fields."""
    table = {}
    group = ""
    for field in dataclasses.fields(model):
        kind, reason, new_group, default_text, change = field.metadata[_KEY]
        group = new_group or group
        required = field.default is dataclasses.MISSING
        shown = "" if required else show(field.default)
        is_text = default_text is not None
        entry = Option(field.name, kind, group, reason, default_text or shown, is_text, required, change)
        table[entry.name] = entry
    return table
