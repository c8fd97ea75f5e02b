"""What a producer costs that returns under its client.id: after a clean end, after a broken connection, and after
kproxy was stopped in good order and started again.
"""

import socket
import statistics
import struct
import time
from collections.abc import Callable
from typing import Final

from bench import payloads
from bench.cases import WINDOW
from bench.load import Connection, LoadError
from bench.report import Figure
from bench.targets import Target, leader, open_kproxy
from kproxy.codec.batch_header import HEADER_SIZE
from kproxy.codec.crc32c import crc32c
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka

PARTITIONS: Final = 6
TURNS: Final = 4
CLEAN_RATIO: Final = 1.05
BROKEN_RATIO: Final = 1.5
STOPPED_RATIO: Final = 1.1
_TOPIC: Final = "bench-restarts"
_STOPPED: Final = "stop of kproxy"
_UNNAMED: Final = "clean end, client without a name"
_JAVA: Final = "apache-kafka-java"
_JVM: Final = ("-Xmx2g", "-XX:+UseG1GC")
_GIGABYTE: Final = 1e9
_PAUSE_SECONDS: Final = 0.5
_RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_TIMES: Final = struct.Struct(">qq")
_TIMES_AT: Final = 27
_REQUEST_BYTES: Final = PARTITIONS * payloads.records_per_batch(payloads.LARGE) * payloads.RECORD_BYTES[payloads.LARGE]


def restarts(total_bytes: int) -> list[Figure]:
    """CPU for each GB of a first producer and of the next one of the same name: six batches of 16 KB a request.

    Each turn has client.ids of its own. One first producer reads all responses and closes its connection, another one
    resets it with responses unread. Of a client that does not name its software kproxy does not know how many requests
    it may have in flight, and reads a thousand of the last ones back when it returns: a cost that does not grow with
    what it writes then. The last case is of two processes of kproxy for each turn: the first one is stopped in good
    order.
    """
    ends: dict[str, tuple[Callable[[Connection, bytearray], None], str]] = {
        "clean end": (_close, _JAVA),
        _UNNAMED: (_close, ""),
        "broken connection": (_break, _JAVA),
    }
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in ends}
    with RealKafka(jvm_options=_JVM) as kafka:
        with ClusterClient(kafka.bootstrap) as client:
            client.create_topic(_TOPIC, PARTITIONS)
        leader(("127.0.0.1", kafka.ports[0]))  # makes the topics that the target is asked for
        with open_kproxy(kafka.ports[0], "--instance-id", "bench-restarts") as target:
            for turn in range(TURNS):
                for name, (end, software) in ends.items():
                    frame = payloads.many_batches_frame(_TOPIC, PARTITIONS, f"bench-{turn}-{name}")
                    requests = max(2 * WINDOW, total_bytes // TURNS // _REQUEST_BYTES)
                    first = _cost(target, frame, requests, end, software)
                    time.sleep(_PAUSE_SECONDS)
                    costs[name].append((first, _cost(target, frame, requests, _close, software)))
        costs[_STOPPED] = [_of_two_processes(kafka.ports[0], turn, total_bytes) for turn in range(TURNS)]
    return _figures(costs)


def _of_two_processes(broker_port: int, turn: int, total_bytes: int) -> tuple[float, float]:
    """The cost of a producer, and of the next one of its name after kproxy was stopped and started."""
    frame = payloads.many_batches_frame(_TOPIC, PARTITIONS, f"bench-{turn}-stopped")
    requests = max(2 * WINDOW, total_bytes // TURNS // _REQUEST_BYTES)
    costs = []
    for _ in range(2):
        with open_kproxy(broker_port, "--instance-id", f"bench-stopped-{turn}") as target:
            costs.append(_cost(target, frame, requests, _close))
    return costs[0], costs[1]


def _cost(
    target: Target, frame: bytearray, requests: int, end: Callable[[Connection, bytearray], None], software: str = _JAVA
) -> float:
    """CPU seconds of kproxy for each GB, the end of the connection included; ``software`` names the client."""
    assert target.program is not None
    before = target.program.cpu_seconds()
    with Connection(target.address) as connection:
        if software:
            connection.ask(payloads.hello(software))
        for number in range(requests + WINDOW):
            if number >= WINDOW:
                payloads.check_many_batches(connection.receive())
            if number < requests:
                _set_time(frame)
                connection.send(frame)
        end(connection, frame)
    return (target.program.cpu_seconds() - before) / (requests * _REQUEST_BYTES) * _GIGABYTE


def _close(_: Connection, __: bytearray) -> None:
    """Nothing is unread: the connection ends in good order."""


def _break(connection: Connection, frame: bytearray) -> None:
    """Sends requests whose responses nobody reads, and resets the connection."""
    for _ in range(WINDOW):
        _set_time(frame)
        connection.send(frame)
    time.sleep(_PAUSE_SECONDS)
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)


def _set_time(frame: bytearray) -> None:
    """Gives the records of each batch in a request the time of now, as a client does that makes new ones."""
    template = payloads.batch(payloads.LARGE)
    now = time.time_ns() // 1_000_000
    at = frame.find(template[HEADER_SIZE:])
    while at >= 0:
        start = at - HEADER_SIZE
        _TIMES.pack_into(frame, start + _TIMES_AT, now, now + payloads.records_per_batch(payloads.LARGE) - 1)
        with memoryview(frame) as view:
            _CRC.pack_into(frame, start + _CRC_AT, crc32c(view[start + _CRC_FROM : start + len(template)]))
        at = frame.find(template[HEADER_SIZE:], at + 1)


def _figures(costs: dict[str, list[tuple[float, float]]]) -> list[Figure]:
    figures = []
    limits = {"clean end": CLEAN_RATIO, "broken connection": BROKEN_RATIO, _STOPPED: STOPPED_RATIO}
    for name in costs:
        ratio = statistics.median(second / first for first, second in costs[name])
        if not ratio:
            raise LoadError("too little was sent to measure CPU time")
        limit = limits.get(name)
        goal = f"{ratio:.2f} x the first" if limit is None else f"<= {limit} x the first: {ratio:.2f}"
        firsts, seconds = zip(*costs[name], strict=True)
        figures.append(Figure(f"first producer, {name}: CPU", "s/GB", None, None, statistics.median(firsts)))
        case = f"next producer of the name, after a {name}: CPU"
        met = None if limit is None else ratio <= limit
        figures.append(Figure(case, "s/GB", None, None, statistics.median(seconds), goal, met))
    return figures
