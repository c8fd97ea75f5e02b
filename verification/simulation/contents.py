"""The content of a record: two records are equal if value, key and headers are, whatever their timestamps."""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from kproxy.codec.batch import Record

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Content(NamedTuple):
    """Value, key and headers."""

    value: bytes
    key: bytes | None = None
    headers: Headers = ()

    def __str__(self) -> str:
        """The value, and what a record with it may have besides."""
        key = "" if self.key is None else f" key={self.key.decode()}"
        headers = "".join(f" {name}={value!r}" for name, value in self.headers)
        return self.value.decode() + key + headers


def content_of(record: Record) -> Content:
    """The content of a record in a log."""
    return Content(record.value or b"", record.key, record.headers)


class Labels(NamedTuple):
    """Keys and headers that a client gives to its records, in turn."""

    keys: Sequence[bytes | None] = (None,)
    headers: Sequence[Headers] = ((),)

    def label(self, value: bytes, nth: int) -> Content:
        """The content of a record of a client's ``nth`` request."""
        return Content(value, self.keys[nth % len(self.keys)], self.headers[nth % len(self.headers)])


UNLABELLED: Final = Labels()
