"""What is fuzzed: a function that takes any bytes, valid inputs to begin with, and what an input may cost."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from unittest import mock

import trio

#: The longest input, in bytes: what grows with the square of the input's length is far above its bound with these.
LONGEST: Final = 4096
#: Bytes that a record set may have when it is decompressed.
MOST_DECOMPRESSED: Final = 2 * LONGEST


class Finding(Exception):
    """An input for which kproxy did not do what its documentation says."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What an input may cost: a constant, and for each of its bytes an amount."""

    #: Instructions of Python's virtual machine.
    steps: int
    steps_of_byte: int
    #: Bytes of memory, at the highest.
    memory: int
    memory_of_byte: int


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to fuzz."""

    name: str
    #: Raises Finding, or any other exception, which is a finding, too.
    check: Callable[[bytes], None]
    #: Valid inputs, to begin with.
    seeds: Callable[[], Iterable[bytes]]
    bound: Bound
    #: Packages and modules whose coverage guides the search and is reported.
    covers: tuple[str, ...]
    #: What often follows each other in such inputs.
    words: tuple[bytes, ...] = field(default=())


def expect(holds: bool, what: str) -> None:
    """Finding, which says what is wrong, unless it holds."""
    if not holds:
        raise Finding(what)


@contextmanager
def without_threads() -> Iterator[None]:
    """A block in which what trio would give to a thread is done at once, so that it is measured like all else."""

    async def at_once(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return function(*arguments)

    with mock.patch.object(trio.to_thread, "run_sync", at_once):
        yield
