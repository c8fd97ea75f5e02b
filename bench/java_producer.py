"""Kafka's own ProducerPerformance to a real broker, through the bare relay and through kproxy in turns."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.cases import CPU_RATIO, Cost
from bench.load import LoadError, Transfer
from bench.processes import free_port, running
from bench.report import Figure
from bench.targets import Target, kproxy_command, leader
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import DEFAULT_VERSION, RealKafka
from kproxy.testing.maven import find_java, kafka_jars

RECORDS = 200_000
_RECORD_BYTES = 1_024
_PARTITIONS = 6
_ROUNDS = 3
_TOPIC = "bench-java"
_PROPERTIES = ("acks=all", "enable.idempotence=false", "batch.size=16384")
_PATIENCE_SECONDS = 300.0
_GIGABYTE, _MEGABYTE = 1e9, 1e6


class _RelayedKafka(RealKafka):
    """One broker whose second listener, also without TLS, names the relay's port as its own."""

    def __init__(self, relay_port: int) -> None:
        super().__init__(ssl={}, jvm_options=("-Xmx1g", "-XX:+UseG1GC"))
        self._relay_port = relay_port

    def _server_properties(self, index: int) -> str:
        return (
            super()._server_properties(index)
            + f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.ports[index]},SSL://127.0.0.1:{self._relay_port}\n"
            + "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:PLAINTEXT\n"
        )


def java_producer(records: int = RECORDS, rounds: int = _ROUNDS) -> list[Figure]:
    """Records of 1 KB to 6 partitions, acks=all, without idempotence; each run is another client."""
    costs: dict[str, Cost] = {}
    with _targets() as targets:
        for turn in range(-1, rounds):
            for target in targets:
                before = target.cpu_seconds()
                done = _produce(target, f"bench-{turn}", records if turn >= 0 else records // 10)
                if turn >= 0:  # the first one only warms up
                    costs.setdefault(target.name, Cost()).add(done, target.cpu_seconds() - before)
    cpu = {name: cost.cpu_seconds / cost.payload_bytes * _GIGABYTE for name, cost in costs.items()}
    speed = {name: cost.payload_bytes / cost.seconds / _MEGABYTE for name, cost in costs.items()}
    ratio = cpu["kproxy"] / cpu["relay"]
    goal = f"<= {CPU_RATIO} x relay: {ratio:.2f}"
    case = "Java ProducerPerformance, 6 partitions"
    return [
        Figure(f"{case}: CPU", "s/GB", None, cpu["relay"], cpu["kproxy"], goal, ratio <= CPU_RATIO),
        Figure(f"{case}: speed", "MB/s", None, speed["relay"], speed["kproxy"]),
    ]


@contextmanager
def _targets() -> Iterator[Sequence[Target]]:
    relay_port, port, leader_port = free_port(), free_port(), free_port()
    with _RelayedKafka(relay_port) as kafka:
        second = kafka.ssl_bootstrap.rpartition(":")[2]
        with ClusterClient(kafka.bootstrap) as client:
            client.create_topic(_TOPIC, _PARTITIONS)
        with (
            running("relay", relay_port, "-m", "bench.relay", str(relay_port), second) as relay,
            running("kproxy", port, *kproxy_command(port, leader_port, kafka.ports[0])) as kproxy,
        ):
            leader(("127.0.0.1", port))  # makes the port of the broker
            yield [
                Target("relay", ("127.0.0.1", relay_port), relay),
                Target("kproxy", ("127.0.0.1", port), kproxy),
            ]


def _produce(target: Target, client_id: str, records: int) -> Transfer:
    host, port = target.address
    command = [find_java(), "-Xmx256m", "-cp", f"{kafka_jars(DEFAULT_VERSION)}/*"]
    command += ["org.apache.kafka.tools.ProducerPerformance", "--topic", _TOPIC, "--num-records", str(records)]
    command += ["--record-size", str(_RECORD_BYTES), "--throughput", "-1", "--bootstrap-server", f"{host}:{port}"]
    command += ["--command-property", *_PROPERTIES, f"client.id={client_id}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE_SECONDS)
    if done.returncode:
        raise LoadError(f"ProducerPerformance: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    # The last line begins with the number of records, then "records sent" and how many that was in a second.
    rate = float(done.stdout.strip().rpartition("records sent, ")[2].split()[0])
    return Transfer(records / rate, records * _RECORD_BYTES, records)
