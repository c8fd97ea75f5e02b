"""Clients of relays that lose responses: the chain of processes, numbered records, and the resulting log."""

import base64
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kproxy.codec.batch import iter_records
from kproxy.codec.messages import ApiKey
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from kproxy.testing.ports import free_ports
from kproxy.testing.relay import FaultRelay, Faults, Frame
from kproxy.testing.relay_thread import RelayThread
from tests.interop.proxy import BROKER_PORTS, KproxyProcess
from tests.interop.records import PARTITIONS

_KEYS: Final = 60
_NUMBER_BYTES: Final = 8
_FILLER: Final = b"." * 72
_MAX_DECOMPRESSED_BYTES: Final = 1 << 26


@dataclass(frozen=True)
class Chain:
    """Where clients connect to, the broker at the end (for reading its log), and the relays in between."""

    bootstrap: str
    broker: str
    faults: Faults
    relays: Sequence[FaultRelay]
    kproxy: KproxyProcess | None = None

    def dropped(self) -> int:
        """Return how many Produce answers were lost so far."""
        return sum(relay.counts.dropped_answers[ApiKey.PRODUCE] for relay in self.relays)


@contextmanager
def through_kproxy(
    broker: str, log: Path, *options: str, watch: Callable[[int], Callable[[Frame], None]] | None = None
) -> Iterator[Chain]:
    """Clients, relays, kproxy, broker: kproxy tells its clients the relays' ports in place of its own.

    :param watch: returns what the relay of this number is to call with its frames.
    """
    faults = Faults()
    first, *others = free_ports(1 + BROKER_PORTS)
    relays = [
        FaultRelay(("127.0.0.1", 0), port=port, faults=faults, seed=port - first, watch=watch and watch(port - first))
        for port in (first, *others)
    ]
    with RelayThread(relays):
        bootstrap = f"127.0.0.1:{first}"
        advertised = ("--advertised-address", bootstrap, "--advertised-broker-ports", f"{others[0]}-{others[-1]}")
        with KproxyProcess(broker, log, *advertised, *options) as kproxy:
            for relay, port in zip(relays, kproxy.ports, strict=True):
                relay.upstream = ("127.0.0.1", port)
            yield Chain(bootstrap, broker, faults, relays, kproxy)


@contextmanager
def direct(version: str) -> Iterator[Chain]:
    """Clients, relay, broker: the effect of lost responses without kproxy, or between kproxy and the broker."""
    [port] = free_ports(1)
    relay = FaultRelay(("127.0.0.1", 0), port=port)
    with RelayThread([relay]), RealKafka(version=version, advertised=[port]) as kafka:
        relay.upstream = ("127.0.0.1", kafka.ports[0])
        yield Chain(f"127.0.0.1:{port}", kafka.bootstrap, relay.faults, [relay])


def numbered(count: int, first_ms: int | None, noise: int = 0) -> list[dict[str, Any]]:
    """Return records in the form of the drivers' jobs: uniquely numbered, keyed, each key on one partition.

    :param first_ms: the first one's timestamp, 1 ms later for each other; None leaves timestamps to the client.
    :param noise: bytes that no codec can compress, in each value from record `quiet(count)` on.
    """
    chance = random.Random(count)
    noises = [chance.randbytes(noise if number >= quiet(count) else 0) for number in range(count)]
    return [
        {
            "p": number % _KEYS % PARTITIONS,
            "k": base64.b64encode(b"key-%d" % (number % _KEYS)).decode(),
            "v": base64.b64encode(b"%0*d" % (_NUMBER_BYTES, number) + _FILLER + noises[number]).decode(),
            "ts": None if first_ms is None else first_ms + number,
            "h": [],
        }
        for number in range(count)
    ]


def quiet(count: int) -> int:
    """Return how many of so many records `numbered` leaves without noise."""
    return count * 7 // 8


@dataclass(frozen=True)
class Findings:
    """What is wrong with a log, in records: copies beyond the first, missing ones, older ones after newer of a key."""

    duplicates: int
    lost: int
    disorder: int


class Written:
    """All that a topic has held, as far as it was read, also what was deleted since: numbered records."""

    def __init__(self) -> None:
        """Nothing was read."""
        #: By partition: the offset after the last one.
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self._records: dict[int, dict[int, tuple[bytes, int]]] = defaultdict(dict)

    def read(self, bootstrap: str, topic: str) -> None:
        """Read what the brokers have now."""
        with ClusterClient(bootstrap) as client:
            for partition in range(PARTITIONS):
                data = client.read_all(topic, partition)
                for record in iter_records(data, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES):
                    number = int(bytes(record.value or b"")[:_NUMBER_BYTES])
                    self._records[partition][record.offset] = (bytes(record.key or b""), number)
                    self.ends[partition] = record.offset + 1

    def compare(self, count: int, failed: Collection[int] = ()) -> Findings:
        """Compare with the numbers below ``count``, in their order of each key.

        :param failed: may be missing: the client has reported that they failed.
        """
        copies: Counter[int] = Counter()
        by_key: dict[bytes, list[int]] = defaultdict(list)
        for rows in self._records.values():
            for _, (key, number) in sorted(rows.items()):
                if number not in copies:
                    by_key[key].append(number)
                copies[number] += 1
        late = sum(later < earlier for numbers in by_key.values() for earlier, later in itertools.pairwise(numbers))
        return Findings(copies.total() - len(copies), len(set(range(count)) - copies.keys() - set(failed)), late)


def examine(broker: str, topic: str, count: int) -> Findings:
    """Read a topic straight from its broker and compare it with `numbered(count)`."""
    written = Written()
    written.read(broker, topic)
    return written.compare(count)
