"""What the cases have in common: brokers, kproxies, the wire to the clients, topics and their logs."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import trio

from kproxy.codec.batch_reader import iter_records
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from verification.chaos.kproxy_process import KproxyFailed, KproxyProcess, log_problems
from verification.network.clients import ClientProcess
from verification.network.line import Line
from verification.network.namespace import Namespace
from verification.network.wire import SERVER_ADDRESS, Wire

__all__ = ["Logged", "Site", "bootstrap_of", "running"]

_MOST_BYTES: Final = 1 << 30
_STOP_S: Final = 60.0


class Logged(NamedTuple):
    """A record in a broker's log."""

    key: bytes | None
    value: bytes
    timestamp: int


class Site:
    """A place where one case after the other runs; a context manager.

    :param directory: for all logs; exists.
    :param source: the directory of another checkout of kproxy, whose code is to run in place of this one's.
    """

    def __init__(self, directory: Path, source: Path | None = None) -> None:
        self.directory = directory
        self._source = source
        self._kafka: RealKafka | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """:raises OSError: the namespace or the wire cannot be made."""
        with ExitStack() as stack:
            self.namespace = stack.enter_context(Namespace())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def kafka(self) -> RealKafka:
        """One broker, for all cases that harm none.

        :raises Unavailable: it does not start.
        """
        if self._kafka is None:
            self._kafka = self._stack.enter_context(RealKafka(directory=self.directory / "kafka"))
        return self._kafka

    def wire(self, line: Line | None = None) -> Wire:
        """Return a wire between kproxy and the clients; one at a time."""
        return Wire(self.namespace, line)

    def topic(self, name: str, kafka: RealKafka | None = None, replicas: int | None = None) -> str:
        """Create a topic with one partition, which each broker has if ``replicas`` is not given; return its name."""
        cluster = kafka or self.kafka
        with ClusterClient(cluster.bootstrap) as client:
            client.create_topic(name, 1, replicas or cluster.brokers)
        return name

    def follower(self, topic: str, kafka: RealKafka) -> int:
        """Return the index of a broker that has a topic's partition and does not lead it."""
        with ClusterClient(kafka.bootstrap) as client:
            [found] = client.metadata(topic).topics[0].partitions
        return next(node for node in found.replica_nodes if node != found.leader_id) - 1

    def log(self, topic: str, kafka: RealKafka | None = None) -> list[Logged]:
        """Return a topic's log, read from its brokers without kproxy."""
        with ClusterClient((kafka or self.kafka).bootstrap) as client:
            data = client.read_all(topic)
        records = iter_records(data, max_decompressed_bytes=_MOST_BYTES)
        return [Logged(record.key, record.value or b"", record.timestamp) for record in records]

    @contextmanager
    def kproxy(
        self, name: str, more: Mapping[str, str] | None = None, *, kafka: RealKafka | None = None
    ) -> Iterator[KproxyProcess]:
        """Run a kproxy that has the default options, ``more`` apart, at the server's end of the wire.

        :raises KproxyFailed: it does not start, or logged an unhandled exception.
        """
        process = self.make_kproxy(name, more, kafka=kafka, host=SERVER_ADDRESS, relayed=False)
        with running(process):
            yield process

    def make_kproxy(
        self, name: str, more: Mapping[str, str] | None = None, *, kafka: RealKafka | None = None, **places: Any
    ) -> KproxyProcess:
        """Return a kproxy that has the default options, ``more`` apart, and does not run yet.

        :param places: further arguments of :class:`KproxyProcess`.
        """
        code = f"import sys; sys.path.insert(0, {str(self._source)!r}); from kproxy.cli import main; main()"
        program = ("-m", "kproxy") if self._source is None else ("-c", code)
        upstream = (kafka or self.kafka).bootstrap
        return KproxyProcess(name, upstream, self.directory, more, defaults={}, program=program, **places)

    def client(
        self, program: tuple[str, tuple[str, ...]], job: Mapping[str, Any], name: str = "client"
    ) -> ClientProcess:
        """Return a client that will run at its end of the wire."""
        return ClientProcess(program, job, self.namespace, self.directory / f"{name}.log")


@contextmanager
def running(process: KproxyProcess) -> Iterator[None]:
    """Start a kproxy, and stop it in good order.

    :raises KproxyFailed: it does not start, or logged an unhandled exception.
    """
    try:
        trio.run(process.start)
        yield
        process.stop(_STOP_S)
    finally:
        process.kill()
    if problems := log_problems(process.log_tail(_MOST_BYTES)):
        raise KproxyFailed(f"{process.name} logged an exception: {problems[0]}")


def bootstrap_of(kproxy: KproxyProcess) -> str:
    """Return where clients at the other end of the wire reach it."""
    return f"{SERVER_ADDRESS}:{kproxy.advertised[0]}"
