"""The cases: each measures its targets in turn and gives figures, some with a goal."""

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bench import load, payloads
from bench.load import Address, Call, Transfer
from bench.report import Figure
from bench.targets import FORGETFUL, Target, open_kproxy, open_sink

WINDOW = 5
ROUNDS = 6
FILTER_TURNS = 24
#: Between two requests: about 100 MB/s with 6 batches in each.
JAVA_PAUSE_SECONDS = 0.0005
CPU_RATIO = 1.3
FILTER_RATIO = 1.05
WALK_RATIO = 1.10
PROVEN = "apache-kafka-java"
OLD_PRODUCE_MICROSECONDS = 3.0
ADDED_MILLISECONDS = 0.5
IDLE_MEGABYTES = 80.0
BUSY_MEGABYTES = 200.0
CONNECTIONS = 1000
BUFFER_BYTES = 128 << 20
_STALL_AFTER_BYTES = 8 << 20
_PUSHING_CONNECTIONS = 100
_PATIENCE_SECONDS = 5.0
_MEGABYTE = 1e6
_GIGABYTE = 1e9
_SETTLE_SECONDS = 1.0
_OLD_ENTRY_OVERHEAD_BYTES = 34  # magic 1, no key: offset, size, CRC, magic, attributes, timestamp, two lengths


@dataclass
class Cost:
    """What a target moved in all rounds, and the CPU seconds of the process in between."""

    seconds: float = 0.0
    payload_bytes: int = 0
    records: int = 0
    cpu_seconds: float = 0.0

    def add(self, transfer: Transfer, cpu_seconds: float) -> None:
        self.seconds += transfer.seconds
        self.payload_bytes += transfer.payload_bytes
        self.records += transfer.records
        self.cpu_seconds += cpu_seconds


def v2_produce(targets: Sequence[Target], total_bytes: int) -> list[Figure]:
    """1 KB records in 16 KB batches of format v2, one batch a request, acks=all."""
    call = payloads.produce_call(payloads.LARGE, payloads.MODERN_PRODUCE)
    costs = _transfers(targets, total_bytes, lambda at, size: load.produce(at, [call], size, window=WINDOW))
    return _per_gigabyte("v2 produce, 1 KB", costs)


def java_produce(targets: Sequence[Target], total_bytes: int) -> list[Figure]:
    """Requests of Kafka's own producer, with 6 batches and with one: at its pace, and without a pause."""
    figures: list[Figure] = []
    for batches in (6, 1):
        calls = payloads.java_calls(batches)
        for name, pause, size in (("", JAVA_PAUSE_SECONDS, total_bytes // 4), (", no pause", 0.0, total_bytes // 2)):
            costs = _transfers(targets, size, partial(_paced, calls, pause))
            figures += _per_gigabyte(f"Java produce, {batches} x 16 KB{name}", costs)
    return figures


def _paced(calls: Sequence[Call], pause_seconds: float, address: Address, total_bytes: int) -> Transfer:
    return load.produce(address, calls, total_bytes, window=WINDOW, pause_seconds=pause_seconds)


def v2_fetch(targets: Sequence[Target], total_bytes: int) -> list[Figure]:
    """The same records, fetched 1 MB at a time by a client to which kproxy passes control batches on."""
    call, hello = payloads.fetch_call(payloads.LARGE, payloads.MODERN_FETCH), payloads.hello(PROVEN)
    entry = payloads.RECORD_BYTES[payloads.LARGE]
    costs = _transfers(
        targets, total_bytes, lambda at, size: load.fetch(at, call, size, entry_bytes=entry, hello=hello)
    )
    return _per_gigabyte("v2 fetch, 1 KB", costs)


def committed_fetch(total_bytes: int) -> list[Figure]:
    """The same, where kproxy decides transactions and the topic has none: of all, relayed; without control batches, for
    a client that is not known to skip them; of what is committed only. Then with batches of one small record each, also
    for a client so old that kproxy has to search for zstd.

    The ways take short turns, each as often the first as the last. A ratio is the median of those of the turns, so
    that a turn that others disturbed does not count.
    """
    with open_sink() as port, open_kproxy(port, *FORGETFUL, "--transactions-home", "kproxy") as target:
        figures = _filtered(target, payloads.LARGE, payloads.MODERN_FETCH, total_bytes, has_goals=True)
        for version in (payloads.MODERN_FETCH, payloads.LAST_WITHOUT_ZSTD):
            figures += _filtered(target, payloads.TINY, version, total_bytes // 4, has_goals=False)
    return figures


def _filtered(target: Target, topic: str, version: int, total_bytes: int, *, has_goals: bool) -> list[Figure]:
    """The three ways to fetch a topic; ``has_goals``: its batches are large."""
    hello, entry = payloads.hello(PROVEN), payloads.RECORD_BYTES[topic]
    ways = [(False, hello), (False, b""), (True, hello)]
    turns: list[list[float]] = []
    for turn in range(FILTER_TURNS):
        costs = [0.0] * len(ways)
        for at in range(len(ways)):
            number = (turn + at) % len(ways)
            committed, first = ways[number]
            call = payloads.fetch_call(topic, version, committed=committed)
            before = target.cpu_seconds()
            transfer = load.fetch(target.address, call, total_bytes // FILTER_TURNS, entry_bytes=entry, hello=first)
            costs[number] = (target.cpu_seconds() - before) / transfer.payload_bytes * _GIGABYTE
        turns.append(costs)
    case = f"fetch v{version}, {payloads.records_per_batch(topic)} x {entry} B a batch"
    plain = statistics.median(costs[0] for costs in turns)
    figures = [Figure(f"{case}, relayed: CPU", "s/GB", None, None, plain)]
    for number, name, most in ((1, "without control batches", WALK_RATIO), (2, "committed", FILTER_RATIO)):
        ratio = statistics.median(costs[number] / costs[0] for costs in turns)
        value = statistics.median(costs[number] for costs in turns)
        goal = f"<= {most} x relayed: {ratio:.2f}" if has_goals else f"{ratio:.2f} x relayed"
        met = ratio <= most if has_goals else None
        figures.append(Figure(f"{case}, {name}: CPU", "s/GB", None, None, value, goal, met))
    return figures


def old_produce(targets: Sequence[Target], total_bytes: int) -> list[Figure]:
    """100-byte records in 16 KB message sets of magic 1, acks=all."""
    call = payloads.produce_call(payloads.SMALL, payloads.OLD_PRODUCE)
    costs = _transfers(targets, total_bytes // 4, lambda at, size: load.produce(at, [call], size, window=WINDOW))
    return _per_record("magic-1 produce, 100 B", costs, OLD_PRODUCE_MICROSECONDS)


def old_fetch(targets: Sequence[Target], total_bytes: int) -> list[Figure]:
    """100-byte records, fetched as message sets of magic 1."""
    call = payloads.fetch_call(payloads.SMALL, payloads.OLD_FETCH)
    entry = payloads.RECORD_BYTES[payloads.SMALL] + _OLD_ENTRY_OVERHEAD_BYTES
    costs = _transfers(targets, total_bytes // 4, lambda at, size: load.fetch(at, call, size, entry_bytes=entry))
    return _per_record("magic-1 fetch, 100 B", costs, None)


def latency(targets: Sequence[Target], total_bytes: int) -> list[Figure]:
    """One small request at a time; the number of requests follows `total_bytes`."""
    times = max(100, min(5000, total_bytes // 50_000))
    figures = _latency("one 100 B record", targets, payloads.small_produce_call(), times)
    return figures + _latency("ListOffsets", targets, payloads.list_offsets_call(), times)


def memory(connections: int = CONNECTIONS) -> list[Figure]:
    """Resident memory of a fresh kproxy, then with many producers connected, each of which has sent one record."""
    call = payloads.small_produce_call()
    with open_sink() as port, open_kproxy(port, *FORGETFUL) as target, contextlib.ExitStack() as stack:
        assert target.program is not None
        time.sleep(_SETTLE_SECONDS)
        idle = target.program.resident_bytes() / _MEGABYTE
        for _ in range(connections):
            call.check(stack.enter_context(load.Connection(target.address)).ask(call.frame))
        time.sleep(_SETTLE_SECONDS)
        busy = target.program.resident_bytes() / _MEGABYTE
    return [
        _memory("memory, idle", idle, IDLE_MEGABYTES),
        _memory(f"memory, {connections:,} connections", busy, BUSY_MEGABYTES),
    ]


def stalled_broker(limit_bytes: int = BUFFER_BYTES) -> list[Figure]:
    """How far kproxy grows when the broker stops reading and the producers do not stop sending."""
    frame = bytes(payloads.big_produce_call().frame)
    option = ("--buffer-memory", str(limit_bytes))
    with (
        open_sink(_STALL_AFTER_BYTES) as port,
        open_kproxy(port, *FORGETFUL, *option) as target,
        contextlib.ExitStack() as stack,
    ):
        assert target.program is not None
        before = target.program.resident_bytes()
        pushed, sockets = load.push_until_blocked(
            [target.address] * _PUSHING_CONNECTIONS, frame, patience_seconds=_PATIENCE_SECONDS
        )
        for connection in sockets:
            stack.enter_context(connection)
        grown = (target.program.peak_bytes() - before) / _MEGABYTE
    limit = limit_bytes / _MEGABYTE
    case = f"growth, broker stalled, {pushed / _MEGABYTE:,.0f} MB sent"
    return [Figure(case, "MB", None, None, grown, f"< {limit:.0f}, the limit", grown < limit)]


def _memory(case: str, megabytes: float, limit: float) -> Figure:
    return Figure(case, "MB", None, None, megabytes, f"< {limit:.0f}", megabytes < limit)


def _transfers(targets: Sequence[Target], total_bytes: int, run: Callable[[Address, int], Transfer]) -> dict[str, Cost]:
    """Run on each target, in turns, so that what else the machine does falls on all alike."""
    costs = {target.name: Cost() for target in targets}
    for _ in range(ROUNDS):
        for target in targets:
            before = target.cpu_seconds()
            transfer = run(target.address, total_bytes // ROUNDS)
            costs[target.name].add(transfer, target.cpu_seconds() - before)
    return costs


def _per_gigabyte(case: str, costs: dict[str, Cost]) -> list[Figure]:
    cpu = {name: cost.cpu_seconds / cost.payload_bytes * _GIGABYTE for name, cost in costs.items()}
    speed = {name: cost.payload_bytes / cost.seconds / _MEGABYTE for name, cost in costs.items()}
    ratio = cpu["kproxy"] / cpu["relay"] if cpu["relay"] else 0.0
    goal = f"<= {CPU_RATIO} x relay: {ratio:.2f}"
    return [
        Figure(f"{case}: CPU", "s/GB", None, cpu["relay"], cpu["kproxy"], goal, ratio <= CPU_RATIO),
        Figure(f"{case}: speed", "MB/s", speed["direct"], speed["relay"], speed["kproxy"]),
    ]


def _per_record(case: str, costs: dict[str, Cost], limit: float | None) -> list[Figure]:
    cpu = {name: cost.cpu_seconds / cost.records * 1e6 for name, cost in costs.items()}
    speed = {name: cost.records / cost.seconds for name, cost in costs.items()}
    goal, met = ("", None) if limit is None else (f"<= {limit:g}", cpu["kproxy"] <= limit)
    return [
        Figure(f"{case}: CPU", "µs/record", None, cpu.get("relay"), cpu["kproxy"], goal, met),
        Figure(f"{case}: speed", "records/s", speed.get("direct"), speed.get("relay"), speed["kproxy"]),
    ]


def _latency(what: str, targets: Sequence[Target], call: Call, times: int) -> list[Figure]:
    taken: dict[str, list[float]] = {target.name: [] for target in targets}
    for _ in range(ROUNDS):
        for target in targets:
            taken[target.name] += load.ping(target.address, call, times // ROUNDS)
    half = {name: load.quantile(sorted(values), 0.5) * 1e3 for name, values in taken.items()}
    tail = {name: load.quantile(sorted(values), 0.99) * 1e3 for name, values in taken.items()}
    added = half["kproxy"] - half["direct"]
    goal = f"added < {ADDED_MILLISECONDS} ms: {added:.2f}"
    return [
        Figure(f"{what}: p50", "ms", half["direct"], half["relay"], half["kproxy"], goal, added < ADDED_MILLISECONDS),
        Figure(f"{what}: p99", "ms", tail["direct"], tail["relay"], tail["kproxy"]),
    ]
