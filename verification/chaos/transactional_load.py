"""Transactions in all homes at the same time: their producers, readers of what is committed, and lag monitors.

The topic whose transactions the brokers decide is read without kproxy; the other one through every kproxy. One reader
that does not know control records reads both through a kproxy.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import trio

from kproxy.client import ControlClient
from verification.chaos.kproxy_process import KproxyProcess
from verification.chaos.link import Address
from verification.chaos.recorder import Recorder
from verification.chaos.released import KAFKA_PYTHON, LIBRDKAFKA, ReleasedClient, ReleasedProducer
from verification.chaos.shared_ids import INPUTS, SharedIds
from verification.chaos.stable_offsets import StableOffsets
from verification.chaos.twins import Twin
from verification.chaos.unaware import ByHand, PerRequest, Unaware, places_of
from verification.chaos.verdict import Bar, read_everything
from verification.history import Operation

if TYPE_CHECKING:
    from kproxy.codec.topic_partition import TopicPartition

BROKERS: Final = "chaos.broker"
OWN: Final = "chaos.own"
TRANSACTIONAL_TOPICS: Final = {BROKERS: 4, OWN: 4}
"""Topics and their partitions, by who decides what is written there: the brokers, or kproxy."""
OTHER_TOPICS: Final = {INPUTS: 1}
"""Topics that nobody writes to."""
_PLACES: Final = {topic: places_of([topic], count) for topic, count in TRANSACTIONAL_TOPICS.items()}
_HOMES: Final = {"broker.*": "broker", "per-request-*.broker": "broker", "fenced.*": "broker-fenced", "own.*": "kproxy"}
_LOOKS: Final = 120
_CONTROL_S: Final = 20.0
_LOOK_S: Final = 1.0

Client = ByHand | PerRequest | ReleasedProducer | Twin


def control_socket(name: str, directory: Path) -> Path:
    """Where the control API of a kproxy is."""
    return directory / f"{name}.sock"


def options(name: str, directory: Path) -> Mapping[str, str]:
    """What a kproxy has to be told beside the rest."""
    homes = ",".join(f"{pattern}={home}" for pattern, home in _HOMES.items())
    return {
        "control-socket": str(control_socket(name, directory)),
        "per-request": "each.*",
        "transactions-home": f"{homes},*=auto",
    }


class TransactionalLoad:
    """The clients of all kproxies.

    :param direct: a broker's own address, which no fault of the network touches.
    """

    def __init__(
        self, kproxies: Sequence[KproxyProcess], direct: Address, directory: Path, recorder: Recorder, seed: int
    ) -> None:
        self._directory = directory
        self._recorder = recorder
        self._seed = seed
        addresses = {kproxy.name: ("127.0.0.1", kproxy.advertised[0]) for kproxy in kproxies}
        self._looks = {f"{BROKERS}.direct": (BROKERS, direct)}
        """By name: what is read and asked about, and where."""
        self._looks |= {f"{OWN}.{name}": (OWN, address) for name, address in addresses.items()}
        self._kproxies = list(addresses.values())
        self.clients: list[tuple[str, Client]] = []
        """Who writes, by name."""
        for kproxy in kproxies:
            self._add(kproxy)
        places = {"fenced": _PLACES[BROKERS], "own": _PLACES[OWN]}
        self._shared_ids = SharedIds(places, self._kproxies, recorder, seed)
        self.clients += [(twin.name, twin) for twin in self._shared_ids.twins]
        self.probers = [
            StableOffsets(f"stable.{name}", {topic: TRANSACTIONAL_TOPICS[topic]}, address, recorder)
            for name, (topic, address) in self._looks.items()
        ]
        """Who asks for last stable offsets."""

    def readers(self) -> list[ReleasedProducer]:
        """Who reads while the faults last: what is committed, and one that takes control records for data."""
        job = {"name": "old-reader", "topics": TRANSACTIONAL_TOPICS, "uncommitted": True}
        return [*self._committed(final=False), self._released("old_reader", job, self._kproxies[0], *KAFKA_PYTHON)]

    def _committed(self, *, final: bool) -> list[ReleasedProducer]:
        """Who reads what is committed; ``final``: to the end, and then it ends."""
        found = []
        for look, (topic, address) in self._looks.items():
            name = f"{'end' if final else 'committed'}.{look}"
            job = {"name": name, "topics": {topic: TRANSACTIONAL_TOPICS[topic]}, "final": final}
            found.append(self._released("committed_reader", job, address))
        return found

    async def settle(self) -> list[Bar]:
        """Wait until all that was begun is decided, some minutes at most; then read the offsets of groups."""
        undecided: list[TopicPartition] = []
        for _ in range(_LOOKS):
            undecided = [place for prober in self.probers for place in await prober.undecided()]
            if not undecided:
                break
            await trio.sleep(_LOOK_S)
        names = ", ".join(f"{topic}-{partition}" for topic, partition in undecided)
        unread = await self._shared_ids.read_positions()
        return [
            Bar("undecided at the end", names or "none", not undecided),
            Bar("groups without an offset", "; ".join(unread) or "none", not unread),
        ]

    async def read_to_the_end(self) -> None:
        """Take down all that is committed."""
        async with trio.open_nursery() as nursery:
            for reader in self._committed(final=True):
                reader.stop()
                nursery.start_soon(reader.run)

    def read_uncommitted(self, bootstrap: str, batches: TextIO) -> Iterator[Operation]:
        """Read everything straight from the brokers, to be compared with what is committed.

        Of the topic whose transactions kproxy decides only ``batches`` are written: there it hides copies, too.
        """
        for operation in read_everything(bootstrap, TRANSACTIONAL_TOPICS, batches):
            if all(poll.topic == BROKERS for poll in operation.polls):
                yield replace(operation, uncommitted=True)

    def _add(self, kproxy: KproxyProcess) -> None:
        name, address = kproxy.name, ("127.0.0.1", kproxy.advertised[0])
        control = ControlClient(control_socket(name, self._directory), timeout=_CONTROL_S)
        for topic, home in ((BROKERS, "broker"), (OWN, "own")):
            # Under such a name nothing is ever written as plain records.
            by_hand = Unaware(f"kproxy-txn-{home}.{name}", _PLACES[topic], f"{home}.{name}")
            self.clients.append((by_hand.name, ByHand(by_hand, address, control, self._recorder, self._seed)))
        each = Unaware(f"each.{name}.broker", _PLACES[BROKERS])
        self.clients.append((each.name, PerRequest(each, address, self._recorder, self._seed)))
        each = Unaware(f"each.{name}.own", _PLACES[OWN])
        self.clients.append((each.name, PerRequest(each, address, self._recorder, self._seed)))
        for topic, home in ((BROKERS, "fenced"), (OWN, "own")):
            job = {"name": f"{home}.{name}.librdkafka", "places": _PLACES[topic]}
            job["transactional_id"] = job["name"]
            self.clients.append(
                (str(job["name"]), self._released("librdkafka_transactions", job, address, *LIBRDKAFKA))
            )

    def _released(
        self, driver: str, job: Mapping[str, object], address: Address, *requirements: str
    ) -> ReleasedProducer:
        client = ReleasedClient(driver, job, requirements)
        return ReleasedProducer(client, f"{address[0]}:{address[1]}", self._recorder, self._directory)
