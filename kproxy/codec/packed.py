"""State at rest as bytes, from which the same process makes it again: ``marshal``, which is the fastest."""

import marshal
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

Plain: TypeAlias = Any
"""Numbers, strings and None, in tuples, lists and dictionaries; no subclasses of these."""

#: Without references, which would take longer to find than they save.
_FORMAT: Final = 2


def pack(state: Plain) -> bytes:
    """Bytes for ``unpack``."""
    return marshal.dumps(state, _FORMAT)


def unpack(data: bytes) -> Plain:
    """The state that ``pack`` was given."""
    return marshal.loads(data)


def plain(values: Iterable[Any]) -> tuple[Any, ...]:
    """The same values, with plain tuples in place of named ones."""
    return tuple([plain(value) if isinstance(value, tuple) else value for value in values])
