"""Converted batches of one response: made in one thread, looked up in another."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from kproxy.errors import RemoteProtocolError

_Made = TypeVar("_Made")


class ConversionMemo:
    """What was made of each batch, or the error if it cannot be read. Not to be used by two threads at once."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], _Made]) -> _Made:
        """What was made for ``key``, which says all that it depends on; else it is made now."""
        if key not in self._made:
            try:
                self._made[key] = make()
            except RemoteProtocolError as error:
                self._made[key] = error
        found: _Made | RemoteProtocolError = self._made[key]
        if isinstance(found, RemoteProtocolError):
            raise found
        return found
