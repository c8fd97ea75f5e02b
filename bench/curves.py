"""What a Produce request costs over the size of its batch, and over the number of connections: a chart of each."""

import contextlib
from collections.abc import Callable, Sequence

from bench import load, payloads
from bench.cases import WINDOW, Cost
from bench.load import Call, Connection, Transfer
from bench.report import Figure
from bench.targets import Target

BATCH_BYTES = (100, 1_000, 10_000, 100_000, 1_000_000)
PRODUCERS = (1, 10, 100, 1_000, 5_000)
CONNECTIONS = (10, 1_000, 5_000)
_ROUNDS = 4
_FEWEST_REQUESTS = 20
_MOST_REQUESTS = 1_000
_MICROSECONDS = 1e6
_SMALL_BATCH = 1_000


def batch_sizes(targets: Sequence[Target], total_bytes: int, sizes: Sequence[int] = BATCH_BYTES) -> list[Figure]:
    """One batch a request, of one record; as fast as they are answered."""
    figures = []
    for size in sizes:
        call = payloads.sized_produce_call(size)
        requests = max(_FEWEST_REQUESTS, min(_MOST_REQUESTS, total_bytes // (len(sizes) * size * _ROUNDS)))
        costs = [(target, Cost()) for target in targets if target.program]
        for _ in range(_ROUNDS):
            for target, cost in costs:
                before = target.cpu_seconds()
                done = load.produce(target.address, [call], requests * call.payload_bytes, window=WINDOW)
                cost.add(done, target.cpu_seconds() - before)
        figures.append(_point("batch size", _short(size, "B"), costs))
    return figures


def producers(targets: Sequence[Target], total_bytes: int, counts: Sequence[int] = PRODUCERS) -> list[Figure]:
    """So many connections, each of another client, that send a request with a batch of 1 KB and wait for the answer."""
    return _connections("producers", targets, total_bytes, counts, lambda number: f"bench-{number}")


def connections(targets: Sequence[Target], total_bytes: int, counts: Sequence[int] = CONNECTIONS) -> list[Figure]:
    """As ``producers``, but all of one client: what one of them sends may be a retry of what another one sent."""
    return _connections("connections of one client", targets, total_bytes, counts, lambda number: "bench-one")


def _connections(
    curve: str, targets: Sequence[Target], total_bytes: int, counts: Sequence[int], client_id: Callable[[int], str]
) -> list[Figure]:
    figures = []
    for count in counts:
        calls = [payloads.sized_produce_call(_SMALL_BATCH, client_id(number)) for number in range(count)]
        rounds = max(1, min(_MOST_REQUESTS, total_bytes // _SMALL_BATCH) // count)
        costs = [(target, Cost()) for target in targets if target.program]
        for target, cost in costs:
            with contextlib.ExitStack() as stack:
                each = [(stack.enter_context(Connection(target.address)), call) for call in calls]
                for connection, call in each:  # leases a producer id, connects to the broker
                    call.check(connection.ask(call.frame))
                for _ in range(_ROUNDS):
                    before = target.cpu_seconds()
                    done = _rounds(each, rounds)
                    cost.add(done, target.cpu_seconds() - before)
        figures.append(_point(curve, f"{count:,}", costs))
    return figures


def _rounds(each: Sequence[tuple[Connection, Call]], rounds: int) -> Transfer:
    for _ in range(rounds):
        for connection, call in each:
            connection.send(call.frame)
        for connection, call in each:
            call.check(connection.receive())
    requests = rounds * len(each)
    return Transfer(0.0, requests * _SMALL_BATCH, requests)


def _point(curve: str, at: str, costs: Sequence[tuple[Target, Cost]]) -> Figure:
    cpu = {target.name: cost.cpu_seconds / cost.records * _MICROSECONDS for target, cost in costs}
    return Figure(f"{curve}, {at}: CPU", "µs/request", None, cpu["relay"], cpu["kproxy"], curve=curve, at=at)


def _short(count: int, unit: str) -> str:
    for name, factor in (("M", 1_000_000), ("k", 1_000)):
        if count >= factor:
            return f"{count // factor} {name}{unit}"
    return f"{count} {unit}"
