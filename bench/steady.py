"""A mix of clients for ten minutes: the last one must cost no more than the first, and take no more memory.

Each client opens a connection, does its part and closes it; one more keeps its connection all the time.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bench import load, payloads
from bench.cases import PROVEN, WINDOW
from bench.load import Address, Connection
from bench.processes import Program
from bench.report import Figure
from bench.targets import FORGETFUL, open_kproxy, open_sink

MINUTES = 10
#: The last minute to the first.
CPU_RATIO = 1.05
GROWTH_MEGABYTES = 10.0
_MINUTE_SECONDS = 60.0
_PAUSE_SECONDS = 0.2
_LARGE_BYTES, _SMALL_BYTES = 1_000_000, 250_000
_MEGABYTE = 1e6


@dataclass(frozen=True)
class Minute:
    """CPU seconds for each MB of payload, and resident memory at the end in bytes."""

    cpu_per_megabyte: float
    resident_bytes: int


def steady(minutes: int = MINUTES, minute_seconds: float = _MINUTE_SECONDS) -> list[Figure]:
    """Producers of three kinds and consumers of four, in turns; a minute before the first is not counted."""
    with (
        open_sink() as port,
        open_kproxy(port, *FORGETFUL, "--transactions-home", "kproxy") as target,
        Connection(target.address) as kept,
    ):
        assert target.program is not None
        clients: list[Callable[[], int]] = [*_clients(target.address), partial(_ask, kept)]
        each = [_minute(target.program, clients, minute_seconds) for _ in range(minutes + 1)][1:]
    first, last = each[0], each[-1]
    ratio = last.cpu_per_megabyte / first.cpu_per_megabyte
    grown = (last.resident_bytes - first.resident_bytes) / _MEGABYTE
    case = f"mix of clients, {minutes} minutes"
    goal = f"<= {CPU_RATIO} x the first: {ratio:.2f}"
    return [
        Figure(f"{case}, the first: CPU", "ms/MB", None, None, first.cpu_per_megabyte * 1e3),
        Figure(f"{case}, the last: CPU", "ms/MB", None, None, last.cpu_per_megabyte * 1e3, goal, ratio <= CPU_RATIO),
        Figure(f"{case}, most of a minute: CPU", "ms/MB", None, None, max(m.cpu_per_megabyte for m in each) * 1e3),
        Figure(
            f"{case}: memory grown",
            "MB",
            None,
            None,
            grown,
            f"< {GROWTH_MEGABYTES:.0f}",
            grown < GROWTH_MEGABYTES,
        ),
    ]


def _minute(program: Program, clients: Sequence[Callable[[], int]], seconds: float) -> Minute:
    payload_bytes, before, end = 0, program.cpu_seconds(), time.monotonic() + seconds
    while time.monotonic() < end:
        payload_bytes += sum(client() for client in clients)
        time.sleep(_PAUSE_SECONDS)
    return Minute((program.cpu_seconds() - before) / payload_bytes * _MEGABYTE, program.resident_bytes())


def _clients(address: Address) -> list[Callable[[], int]]:
    """Each does its part and returns the bytes of payload."""
    modern = [payloads.produce_call(payloads.LARGE, payloads.MODERN_PRODUCE)]
    old = [payloads.produce_call(payloads.SMALL, payloads.OLD_PRODUCE)]
    fetch, committed = (
        payloads.fetch_call(payloads.LARGE, payloads.MODERN_FETCH, committed=level) for level in (False, True)
    )
    fetches = [
        (fetch, payloads.LARGE, _LARGE_BYTES, PROVEN),
        (fetch, payloads.LARGE, _LARGE_BYTES, ""),
        (committed, payloads.LARGE, _LARGE_BYTES, PROVEN),
        (payloads.fetch_call(payloads.SMALL, payloads.OLD_FETCH), payloads.SMALL, _SMALL_BYTES, ""),
    ]
    producers = [(modern, _LARGE_BYTES), (payloads.java_calls(6), _LARGE_BYTES), (old, _SMALL_BYTES)]
    parts: list[Callable[[], int]] = [partial(_produce, address, calls, size) for calls, size in producers]
    return parts + [
        partial(_fetch, address, call, payloads.RECORD_BYTES[topic], size, payloads.hello(name) if name else b"")
        for call, topic, size, name in fetches
    ]


def _produce(address: Address, calls: Sequence[load.Call], size: int) -> int:
    return load.produce(address, calls, size, window=WINDOW).payload_bytes


def _fetch(address: Address, call: load.Call, entry_bytes: int, size: int, hello: bytes) -> int:
    return load.fetch(address, call, size, entry_bytes=entry_bytes, hello=hello).payload_bytes


def _ask(kept: Connection) -> int:
    """A small request on a connection that stays."""
    call = payloads.small_produce_call()
    call.check(kept.ask(call.frame))
    return call.payload_bytes
