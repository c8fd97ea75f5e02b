"""What a test of faults pulls, on the fake and on a real cluster alike."""

import resource
from collections.abc import Callable
from typing import Protocol

import trio

from kproxy.testing.fake_broker import FakeServer
from kproxy.testing.kafka import RealKafka


class Levers(Protocol):
    """One cluster whose brokers and replicas can be harmed; node ids begin at 1."""

    bootstrap: str

    def pause(self, node: int) -> None:
        """Let a broker's replicas stop following."""

    def resume(self, node: int) -> None:
        """Let them continue."""

    def out_of_sync(self, node: int) -> None:
        """Let a paused broker's replicas be out of sync; on a real cluster that takes its time by itself."""

    def kill(self, node: int) -> None:
        """End a broker at once."""

    def start(self, node: int) -> None:
        """Start a broker again; do not wait for it."""

    def controller(self, there: bool) -> None:
        """Follows from the number of live brokers on a real cluster; the fake needs it set."""

    def tidy(self) -> None:
        """Do what cleaners and retention do from time to time."""

    def crash(self) -> None:
        """End the first broker and start it again; wait until it serves."""

    def lose(self, topic: str) -> None:
        """Let the first broker's partitions of a topic lose all their records, as an unclean election does."""

    def fill(self, node: int) -> None:
        """Let a broker's disk be full."""

    def make_room(self, node: int) -> None:
        """Start a broker again, now with room."""


class RealLevers:
    """The levers of a real cluster: signals."""

    def __init__(self, kafka: RealKafka) -> None:
        self.bootstrap = kafka.bootstrap
        self._kafka = kafka

    def pause(self, node: int) -> None:
        """Freeze the whole broker."""
        self._kafka.pause(node - 1)

    def resume(self, node: int) -> None:
        """Let it run on."""
        self._kafka.resume(node - 1)

    def out_of_sync(self, node: int) -> None:
        """Comes by itself when the broker's session has expired, after 3 s."""

    def kill(self, node: int) -> None:
        """Kill the process."""
        self._kafka.kill(node - 1)

    def start(self, node: int) -> None:
        """Start the process and wait until it serves as far as it can."""
        self._kafka.restart(node - 1)

    def controller(self, there: bool) -> None:
        """Two of three voters make a controller."""

    def tidy(self) -> None:
        """Comes by itself."""

    def crash(self) -> None:
        """Kill the process and start it again."""
        self._kafka.restart(0)

    def lose(self, topic: str) -> None:
        """Kill the process, delete the files of its records, and start it again."""
        self._kafka.kill(0)
        for directory in (self._kafka.directory / "data-1").glob(f"{topic}-*"):
            for path in directory.iterdir():
                if path.name != "partition.metadata":
                    path.unlink()
        self._kafka.restart(0)

    def fill(self, node: int) -> None:
        """Let no file of the process grow beyond 300 kB: a write that fails is one, whatever the disk's reason."""
        pid = self._kafka.pid(node - 1)
        assert pid is not None
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (300_000, 300_000))

    def make_room(self, node: int) -> None:
        """Start another process, which has no limit."""
        self._kafka.restart(node - 1)


class FakeLevers:
    """The levers of a fake cluster in another thread."""

    def __init__(self, server: FakeServer, token: trio.lowlevel.TrioToken) -> None:
        self.bootstrap = server.bootstrap
        self._server = server
        self._token = token

    def pause(self, node: int) -> None:
        """Stop its replicas."""
        self._do(lambda: self._server.cluster.pause_replication(node))

    def resume(self, node: int) -> None:
        """Let them catch up."""
        self._do(lambda: self._server.cluster.resume_replication(node))

    def out_of_sync(self, node: int) -> None:
        """Take them out of sync."""
        self._do(lambda: self._server.cluster.shrink_isr(node))

    def kill(self, node: int) -> None:
        """Stop the broker."""
        trio.from_thread.run(self._server.stop_broker, node, trio_token=self._token)

    def start(self, node: int) -> None:
        """Start the broker."""
        trio.from_thread.run(self._server.start_broker, node, trio_token=self._token)

    def controller(self, there: bool) -> None:
        """Take the controller away or bring it back."""
        cluster = self._server.cluster
        self._do(cluster.controller_up if there else cluster.controller_down)

    def tidy(self) -> None:
        """Apply retention and compact what is to be compacted."""
        self._do(self._tidy)

    def crash(self) -> None:
        """Forget the producers that the logs do not hold."""
        self._do(self._forget)

    def lose(self, topic: str) -> None:
        """Truncate the logs and elect the leaders again."""
        self._do(lambda: self._lose(topic))

    def fill(self, node: int) -> None:
        """Fail the broker's log directory."""
        self._do(lambda: self._server.cluster.disk_full(node))

    def make_room(self, node: int) -> None:
        """Repair it."""
        self._do(lambda: self._server.cluster.disk_repaired(node))

    def _tidy(self) -> None:
        cluster = self._server.cluster
        cluster.apply_retention()
        for name, topic in cluster.topics.items():
            if topic.config.get("cleanup.policy") == "compact":
                cluster.compact(name, 0)

    def _forget(self) -> None:
        for name in self._server.cluster.topics:
            self._server.cluster.forget_producers(name, 0)

    def _lose(self, topic: str) -> None:
        for partition in self._server.cluster.topics[topic].partitions:
            partition.log.truncate(0)
            partition.lead(partition.leader)

    def _do(self, what: Callable[[], None]) -> None:
        trio.from_thread.run_sync(what, trio_token=self._token)
