"""Transactions in all homes at a time: who writes them, who reads what is committed, and who asks where all is decided.

Of the topic at home in the brokers everything is read and asked without kproxy; of the other one through it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from kproxy.client import ControlClient
from verification.chaos.kproxy_process import KproxyProcess
from verification.chaos.link import Address
from verification.chaos.recorder import Recorder
from verification.chaos.released import LIBRDKAFKA, ReleasedClient, ReleasedProducer
from verification.chaos.stable_offsets import StableOffsets
from verification.chaos.unaware import ByHand, PerRequest, Unaware, places_of
from verification.chaos.verdict import Bar

if TYPE_CHECKING:
    from kproxy.codec.topic_partition import TopicPartition

BROKERS: Final = "chaos.broker"
OWN: Final = "chaos.own"
TRANSACTIONAL_TOPICS: Final = {BROKERS: 4, OWN: 4}
"""Topics and their partitions, by who decides what is written there: the brokers, or kproxy."""
_PLACES: Final = {topic: places_of([topic], count) for topic, count in TRANSACTIONAL_TOPICS.items()}
_HOMES: Final = {"broker.*": "broker", "per-request-*.broker": "broker", "fenced.*": "broker-fenced", "own.*": "kproxy"}
_LOOKS: Final = 120
_CONTROL_S: Final = 20.0
_LOOK_S: Final = 1.0

Client = ByHand | PerRequest | ReleasedProducer


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
        self._places = {BROKERS: direct, OWN: ("127.0.0.1", kproxies[0].advertised[0])}
        """Where each topic is read and asked about."""
        self.clients: list[tuple[str, Client]] = []
        """Who writes, by name."""
        for kproxy in kproxies:
            self._add(kproxy)
        self.probers = [
            StableOffsets(f"stable.{topic}", {topic: TRANSACTIONAL_TOPICS[topic]}, address, recorder)
            for topic, address in self._places.items()
        ]
        """Who asks for last stable offsets."""

    def readers(self, *, final: bool = False) -> list[ReleasedProducer]:
        """Who reads what is committed; ``final``: to the end, and then it ends."""
        found = []
        for topic, address in self._places.items():
            name = f"{'end' if final else 'committed'}.{topic}"
            job = {"name": name, "topics": {topic: TRANSACTIONAL_TOPICS[topic]}, "final": final}
            found.append(self._released("committed_reader", job, address))
        return found

    async def settle(self) -> Bar:
        """Wait until all that was begun is decided, some minutes at most."""
        undecided: list[TopicPartition] = []
        for _ in range(_LOOKS):
            undecided = [place for prober in self.probers for place in await prober.undecided()]
            if not undecided:
                break
            await trio.sleep(_LOOK_S)
        names = ", ".join(f"{topic}-{partition}" for topic, partition in undecided)
        return Bar("undecided at the end", names or "none", not undecided)

    async def read_to_the_end(self) -> None:
        """Take down all that is committed."""
        async with trio.open_nursery() as nursery:
            for reader in self.readers(final=True):
                reader.stop()
                nursery.start_soon(reader.run)

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
