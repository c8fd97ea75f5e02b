"""Whether kproxy holds at the end what it held after it had warmed up."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from verification.soak.sample import Sample

_PARTS: Final = 4
_LEAST_OF_A_PART: Final = 3
_TENTH: Final = 1.1
#: Connections of kproxy's own to brokers, with their tasks, which it opens and closes at any time.
_OWN: Final = 10
#: What kproxy keeps of the clients of the last minutes varies with how many came.
_OBJECTS: Final = 1.05
_PAGE: Final = 1.05
#: A machine that others use takes longer for the same work.
_CPU: Final = 1.5
_MEGABYTE: Final = 1e6


class TooShort(Exception):
    """There are too few samples to judge."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure of the first quarter after the warm-up, the same of the last quarter, and the most that it may be."""

    name: str
    first: float
    last: float
    most: float

    @property
    def met(self) -> bool:
        """Whether it has not grown."""
        return self.last <= self.most


def judge(samples: Sequence[Sample], warm_up_seconds: float) -> list[Bar]:
    """The bars, of the samples after the warm-up. TooShort if these are fewer than 12."""
    warm = [sample for sample in samples if sample.seconds >= warm_up_seconds]
    size = len(warm) // _PARTS
    if size < _LEAST_OF_A_PART:
        raise TooShort(f"{len(warm)} samples after the warm-up; at least {_PARTS * _LEAST_OF_A_PART} are needed")
    return list(_bars(warm[:size], warm[-size:]))


def _bars(first: Sequence[Sample], last: Sequence[Sample]) -> Iterator[Bar]:
    def middle(name: str, of: Callable[[Sample], float], share: float, more: float = 0.0) -> Bar:
        before = median(map(of, first))
        return Bar(name, before, median(map(of, last)), before * share + more)

    yield middle("resident memory, MB", lambda sample: sample.resident / _MEGABYTE, _TENTH)
    yield middle("open files", lambda sample: sample.files, _TENTH, _OWN)
    yield middle("tasks", lambda sample: sample.tasks, 1.0, _OWN)
    yield middle("Python objects", lambda sample: sample.blocks, _OBJECTS)
    yield middle("allocated, MB", lambda sample: sample.heap_used / _MEGABYTE, _TENTH)
    yield middle("metrics page, bytes", lambda sample: sample.page_bytes, _PAGE)
    before, after = (_cpu_of_a_client(part) for part in (first, last))
    yield Bar("CPU of a client, ms", before, after, before * _CPU)


def _cpu_of_a_client(part: Sequence[Sample]) -> float:
    clients = part[-1].clients - part[0].clients
    return (part[-1].cpu_seconds - part[0].cpu_seconds) * 1000 / max(1, clients)
