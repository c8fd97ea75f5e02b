"""Leaks that are planted are found, and what only varies is not called one."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from verification.soak.sample import Sample
from verification.soak.verdict import TooShort, judge

#: Of a sample and the number of clients so far, the sample with a leak.
Leak = Callable[[Sample, int], Sample]
_SAMPLES, _CLIENTS = 180, 50
_WARM_UP = 600.0


def samples(leak: Leak = lambda sample, _: sample) -> list[Sample]:
    """Half an hour at 5 clients a second; memory grows only while kproxy warms up."""
    chance, made = random.Random(1), []
    for number in range(_SAMPLES):
        clients = number * _CLIENTS
        sample = Sample(
            seconds=number * 10.0,
            clients=clients,
            resident=int(60e6 + min(clients, 2000) * 5000 + chance.uniform(0, 5e6)),
            files=16 + chance.randrange(8),
            tasks=15 + chance.randrange(8),
            blocks=300_000 + chance.randrange(5_000),
            heap_used=int(14e6 + chance.uniform(0, 1e6)),
            heap_free=int(5e6),
            cpu_seconds=clients * 0.012 * chance.uniform(0.99, 1.01),
            page_bytes=57_000 + number // 2 + chance.randrange(200),
        )
        made.append(leak(sample, clients))
    return made


def grown(leak: Leak = lambda sample, _: sample) -> set[str]:
    return {bar.name for bar in judge(samples(leak), _WARM_UP) if not bar.met}


def test_what_only_varies_has_not_grown() -> None:
    assert grown() == set()


@pytest.mark.parametrize(
    ("leak", "name"),
    [
        (lambda sample, clients: replace(sample, resident=sample.resident + 2000 * clients), "resident memory, MB"),
        (lambda sample, clients: replace(sample, files=sample.files + clients // 200), "open files"),
        (lambda sample, clients: replace(sample, tasks=sample.tasks + clients // 300), "tasks"),
        (lambda sample, clients: replace(sample, blocks=sample.blocks + 4 * clients), "Python objects"),
        (lambda sample, clients: replace(sample, heap_used=sample.heap_used + 400 * clients), "allocated, MB"),
        (lambda sample, clients: replace(sample, page_bytes=sample.page_bytes + clients), "metrics page, bytes"),
        (
            lambda sample, clients: replace(sample, cpu_seconds=sample.cpu_seconds + clients**2 * 3e-6),
            "CPU of a client, ms",
        ),
    ],
)
def test_a_leak_is_found(leak: Leak, name: str) -> None:
    assert grown(leak) == {name}


def test_a_run_that_is_too_short_is_not_judged() -> None:
    with pytest.raises(TooShort, match="11 samples"):
        judge(samples()[:11], 0.0)
    assert judge(samples()[:12], 0.0)
