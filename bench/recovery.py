"""How long a producer waits whose kproxy was killed: from `kill -9` until the next one accepts the first retry."""

import contextlib
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench import payloads
from bench.load import Address, Connection, LoadError
from bench.processes import free_port, running
from bench.report import Figure
from bench.targets import kproxy_command, leader
from kproxy.budget import unbounded
from kproxy.codec._generated.produce import ProduceResponse
from kproxy.codec.batch import iter_records
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka

PARTITIONS: Final = (1, 100, 1000)
_PATIENCE_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.01
_CORRELATION_BYTES: Final = 4
_ROOMY: Final = 1 << 26
_RETRIABLE: Final = (
    ErrorCode.NONE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


@dataclass(frozen=True)
class _Timed:
    """Seconds from a beginning until kproxy listened and until all partitions' records were accepted."""

    listening: float
    accepted: float


def recovery(counts: Sequence[int] = PARTITIONS) -> list[Figure]:
    """One Produce request covers all partitions; its response is lost with the process, and it is sent again."""
    with RealKafka() as kafka:
        return [figure for count in counts for figure in _crash(kafka, count)]


def _crash(kafka: RealKafka, partitions: int) -> list[Figure]:
    topic = f"bench-recovery-{partitions}"
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic(topic, partitions)
    now = int(time.time() * 1000)
    before, frame = (payloads.many_partitions_frame(topic, partitions, now + after) for after in (0, 1))
    port, leader_port = free_port(), free_port()
    command = [*kproxy_command(port, leader_port, kafka.ports[0]), "--instance-id", f"bench-{partitions}"]
    address = ("127.0.0.1", leader_port)
    began = time.perf_counter()
    with running("kproxy", port, *command) as program:
        leader(("127.0.0.1", port))  # makes the port of the broker
        fresh = _send_until_accepted(address, before, began)
        with Connection(address) as connection:
            connection.send(frame)
            select.select([connection.socket], [], [], _PATIENCE_SECONDS)  # written, and the response is never read
            began = time.perf_counter()
            program.process.kill()
            program.process.wait()
    with running("kproxy", port, *command):
        again = _send_until_accepted(address, frame, began)
    named = f"{partitions:,} partition{'s' if partitions > 1 else ''}"
    return [
        Figure(f"first start, {named}: accepted", "s", None, None, fresh.accepted),
        Figure(f"kill -9, {named}: retry accepted", "s", None, None, again.accepted),
        Figure(f"kill -9, {named}: of it after start", "s", None, None, again.accepted - again.listening),
        _duplicates(kafka, topic, partitions, named),
    ]


def _send_until_accepted(address: Address, frame: bytes, began: float) -> _Timed:
    """Send as a producer without any patience does.

    Raises:
        LoadError: an error that no retry mends, or nothing was accepted in 60 s.
    """
    listening = None
    while time.perf_counter() - began < _PATIENCE_SECONDS:
        with contextlib.suppress(OSError), Connection(address) as connection:
            if listening is None:
                listening = time.perf_counter() - began
            if _accepted(_ask(connection, frame)):
                return _Timed(listening, time.perf_counter() - began)
        time.sleep(_PAUSE_SECONDS)
    raise LoadError(f"nothing was accepted within {_PATIENCE_SECONDS:.0f} s")


def _ask(connection: Connection, frame: bytes) -> bytes | None:
    """The response, or None if the connection ended before it."""
    try:
        return bytes(connection.ask(frame))
    except LoadError:
        return None


def _accepted(answer: bytes | None) -> bool:
    if answer is None:
        return False
    [topic] = ProduceResponse.decode(answer, payloads.OLD_PRODUCE, unbounded(), _CORRELATION_BYTES).responses
    codes = {partition.error_code for partition in topic.partition_responses}
    if wrong := codes.difference(_RETRIABLE):
        raise LoadError(f"error codes {sorted(wrong)}")
    return codes == {ErrorCode.NONE}


def _duplicates(kafka: RealKafka, topic: str, partitions: int, named: str) -> Figure:
    """Read the log: two different records were sent to each partition."""
    with ClusterClient(kafka.bootstrap) as client:
        found = sum(
            len(list(iter_records(client.read_all(topic, partition), max_decompressed_bytes=_ROOMY)))
            for partition in range(partitions)
        )
    extra = found - 2 * partitions
    return Figure(f"kill -9, {named}: duplicates", "records", None, None, extra, "0", extra == 0)
