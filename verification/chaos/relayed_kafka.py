"""A cluster with several addresses for each broker: its own, and those of relays that put faults before a client."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kproxy.codec._generated.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from kproxy.testing.ports import free_ports

_ELECTION_MS: Final = 10_000
_CONFIG: Final = {
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "auto.create.topics.enable": "false",
    "inter.broker.listener.name": "PLAINTEXT",
}


class RelayedKafka(RealKafka):
    """Real brokers; a client that asks on a broker's relayed port receives the relays' addresses.

    ``bootstrap`` and ``ports`` are the brokers' own, untouched by faults.

    :param networks: how many relays each broker is to have: one for each client that is cut off by itself.
    """

    def __init__(self, brokers: int, directory: Path, networks: int = 1) -> None:
        config = _CONFIG if brokers > 1 else {**_CONFIG, "min.insync.replicas": "1"}
        super().__init__(brokers=brokers, config=config, directory=directory)
        self.relayed_ports = [free_ports(brokers) for _ in range(networks)]
        """Of each network: where each broker listens for its relay."""
        self.relay_ports = [free_ports(brokers) for _ in range(networks)]
        """Of each network: where the relay of each broker is to listen."""

    def respawn(self, index: int) -> None:
        """Start the broker at ``index`` again, killing it if it runs, and do not wait until it serves.

        To be called in the main thread, whose end the kernel then makes the broker's, too.
        """
        self.kill(index)
        self._spawn(index)

    def wait_served(self, index: int) -> None:
        """Wait until the broker at ``index`` answers; may be called in another thread.

        :raises Unavailable: it does not come up.
        """
        self._wait_ready([index], 1)

    def move_leaders(self) -> None:
        """Have each partition led by the broker that is to lead it, where that one is up to date."""
        request = ElectLeadersRequest(topic_partitions=None, timeout_ms=_ELECTION_MS)
        with contextlib.suppress(OSError), ClusterClient(self.bootstrap, timeout=_ELECTION_MS / 1000) as client:
            client.any_broker().call(request, 2, ElectLeadersResponse)

    def _server_properties(self, index: int) -> str:
        own = {"PLAINTEXT": self.ports[index]}
        networks = range(len(self.relay_ports))
        listens = {**own, **{f"RELAYED{n}": self.relayed_ports[n][index] for n in networks}}
        advertised = {**own, **{f"RELAYED{n}": self.relay_ports[n][index] for n in networks}}
        listens["CONTROLLER"] = self._controller_ports[index]
        # Of two equal keys the last one counts.
        return (
            super()._server_properties(index)
            + f"listeners={_listeners(listens)}\nadvertised.listeners={_listeners(advertised)}\n"
            + f"listener.security.protocol.map={','.join(f'{name}:PLAINTEXT' for name in listens)}\n"
        )


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
