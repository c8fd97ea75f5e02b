"""What TLS to clients costs: CPU for each GB and for each handshake, memory for each connection."""

import contextlib
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trustme

from bench import load, payloads
from bench.cases import ROUNDS, WINDOW, Cost
from bench.load import Transfer
from bench.report import Figure
from bench.targets import FORGETFUL, Target, open_kproxy, open_sink

CONNECTIONS: Final = 5000
BUSY: Final = 100
MEGABYTES: Final = 400.0
_RECORDS_OF_EACH: Final = 50
_SETTLE_SECONDS: Final = 1.0
_MEGABYTE: Final = 1e6
_GIGABYTE: Final = 1e9


@dataclass(frozen=True)
class _Way:
    """A kproxy, and what its clients need for TLS, if it speaks it."""

    name: str
    target: Target
    tls: ssl.SSLContext | None


def tls(total_bytes: int) -> list[Figure]:
    """Produce and fetch of 1 KB records, clients in the clear and over TLS in turns."""
    with open_sink() as port, _in_the_clear(port) as clear, _over_tls(port) as secured:
        ways = (clear, secured)
        return [
            *_figures("v2 produce, 1 KB", _costs(ways, _produce, total_bytes)),
            *_figures("v2 fetch, 1 KB", _costs(ways, _fetch, total_bytes)),
        ]


def connections(count: int = CONNECTIONS, busy: int = BUSY) -> list[Figure]:
    """Memory with so many clients that have all sent one request, while some of them keep writing."""
    found = []
    for opened in (_in_the_clear, _over_tls):
        with open_sink() as port, opened(port) as way:
            found += _crowd(way, count, busy)
    return found


def _crowd(way: _Way, count: int, busy: int) -> list[Figure]:
    program = way.target.program
    assert program is not None
    asked, written = payloads.list_offsets_call(), payloads.small_produce_call()
    time.sleep(_SETTLE_SECONDS)
    before = program.cpu_seconds()
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(load.Connection(way.target.address, way.tls)) for _ in range(count)]
        for connection in opened:
            asked.check(connection.ask(asked.frame))
        spent = program.cpu_seconds() - before
        for _ in range(_RECORDS_OF_EACH):
            for connection in opened[:busy]:
                connection.send(written.frame)
            for connection in opened[:busy]:
                written.check(connection.receive())
        time.sleep(_SETTLE_SECONDS)
        resident = program.resident_bytes() / _MEGABYTE
    what = f"{count:,} connections {way.name}"
    goal = f"< {MEGABYTES:.0f}"
    return [
        Figure(f"{what}, {count - busy:,} idle: memory", "MB", None, None, resident, goal, resident < MEGABYTES),
        Figure(f"{what}: CPU of one, and its first request", "ms", None, None, spent / count * 1e3),
    ]


def _produce(way: _Way, size: int) -> Transfer:
    call = payloads.produce_call(payloads.LARGE, payloads.MODERN_PRODUCE)
    return load.produce(way.target.address, [call], size, window=WINDOW, tls=way.tls)


def _fetch(way: _Way, size: int) -> Transfer:
    call = payloads.fetch_call(payloads.LARGE, payloads.MODERN_FETCH)
    entry = payloads.RECORD_BYTES[payloads.LARGE]
    return load.fetch(way.target.address, call, size, entry_bytes=entry, tls=way.tls)


def _costs(ways: tuple[_Way, ...], run: Callable[[_Way, int], Transfer], total_bytes: int) -> dict[str, Cost]:
    costs = {way.name: Cost() for way in ways}
    for _ in range(ROUNDS):
        for way in ways:
            before = way.target.cpu_seconds()
            transfer = run(way, total_bytes // ROUNDS)
            costs[way.name].add(transfer, way.target.cpu_seconds() - before)
    return costs


def _figures(case: str, costs: dict[str, Cost]) -> list[Figure]:
    return [
        Figure(f"{case}, {name}: CPU", "s/GB", None, None, cost.cpu_seconds / cost.payload_bytes * _GIGABYTE)
        for name, cost in costs.items()
    ]


@contextlib.contextmanager
def _in_the_clear(broker_port: int) -> Iterator[_Way]:
    with open_kproxy(broker_port, *FORGETFUL) as target:
        yield _Way("in the clear", target, None)


@contextlib.contextmanager
def _over_tls(broker_port: int) -> Iterator[_Way]:
    with tempfile.TemporaryDirectory() as directory:
        authority = trustme.CA()
        certificate = Path(directory, "tls.pem")
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(certificate))
        context = ssl.create_default_context()
        authority.configure_trust(context)
        options = (*FORGETFUL, "--ssl-certificate-location", str(certificate))
        with open_kproxy(broker_port, *options, tls=context) as target:
            yield _Way("over TLS", target, context)
