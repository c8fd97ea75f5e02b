"""Kafka's own ProducerPerformance to a real broker, in turns through the bare relay, through kproxy, and through kproxy
without its compiled functions, where these are in use; and as an idempotent producer through kproxy that keeps its
numbers, and through one that relays it.
"""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from bench.cases import CPU_RATIO, Cost
from bench.load import LoadError, Transfer
from bench.processes import free_port, running
from bench.report import Figure
from bench.targets import Target, kproxy_command, leader
from kproxy.codec.accelerator import STATE, SWITCH, SWITCHED_OFF
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import DEFAULT_VERSION, RealKafka
from kproxy.testing.maven import find_java, kafka_jars

RECORDS = 200_000
_RECORD_BYTES = 1_024
_PARTITIONS = 6
_ROUNDS = 3
_KPROXY, _PURE = "kproxy", "kproxy-pure"
_TOPIC = "bench-java"
_PROPERTIES = ("acks=all", "enable.idempotence=false", "batch.size=16384")
_IDEMPOTENT = ("acks=all", "enable.idempotence=true", "batch.size=16384")
_KEPT, _RELAYED = "kept", "relayed"
#: A kept idempotent batch may cost so much of a relayed one.
_KEPT_RATIO = 1.15
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
    with _targets() as targets:
        costs = _costs(targets, records, rounds, _PROPERTIES)
    cpu = {name: cost.cpu_seconds / cost.payload_bytes * _GIGABYTE for name, cost in costs.items()}
    speed = {name: cost.payload_bytes / cost.seconds / _MEGABYTE for name, cost in costs.items()}
    case = "Java ProducerPerformance, 6 partitions"
    figures = []
    for name, what in ((_KPROXY, case), (_PURE, f"{case}, without compiled functions")):
        if name in cpu:
            ratio = cpu[name] / cpu["relay"]
            goal = f"<= {CPU_RATIO} x relay: {ratio:.2f}"
            figures.append(Figure(f"{what}: CPU", "s/GB", None, cpu["relay"], cpu[name], goal, ratio <= CPU_RATIO))
            figures.append(Figure(f"{what}: speed", "MB/s", None, speed["relay"], speed[name]))
    return figures


def kept_producer(records: int = RECORDS, rounds: int = _ROUNDS) -> list[Figure]:
    """As ``java_producer``, of an idempotent producer: kproxy keeps its numbers, or relays it (beside it)."""
    with RealKafka(jvm_options=("-Xmx1g", "-XX:+UseG1GC")) as kafka, ExitStack() as stack:
        with ClusterClient(kafka.bootstrap) as client:
            client.create_topic(_TOPIC, _PARTITIONS)
        ways = {_RELAYED: ("--idempotent-clients", "nobody"), _KEPT: ()}
        targets = [stack.enter_context(_kproxy(name, kafka.ports[0], {}, *more)) for name, more in ways.items()]
        costs = _costs(targets, records, rounds, _IDEMPOTENT)
    cpu = {name: cost.cpu_seconds / cost.payload_bytes * _GIGABYTE for name, cost in costs.items()}
    ratio = cpu[_KEPT] / cpu[_RELAYED]
    case = "idempotent Java ProducerPerformance, numbers kept, beside relayed: CPU"
    goal = f"<= {_KEPT_RATIO} x relayed: {ratio:.2f}"
    return [Figure(case, "s/GB", None, cpu[_RELAYED], cpu[_KEPT], goal, ratio <= _KEPT_RATIO)]


def _costs(targets: Sequence[Target], records: int, rounds: int, properties: Sequence[str]) -> dict[str, Cost]:
    """By target what all rounds cost."""
    costs: dict[str, Cost] = {}
    for turn in range(-1, rounds):
        for target in targets:
            before = target.cpu_seconds()
            done = _produce(target, f"bench-{turn}", records if turn >= 0 else records // 10, properties)
            if turn >= 0:  # the first one only warms up
                costs.setdefault(target.name, Cost()).add(done, target.cpu_seconds() - before)
    return costs


@contextmanager
def _targets() -> Iterator[Sequence[Target]]:
    relay_port = free_port()
    with _RelayedKafka(relay_port) as kafka:
        second = kafka.ssl_bootstrap.rpartition(":")[2]
        with ClusterClient(kafka.bootstrap) as client:
            client.create_topic(_TOPIC, _PARTITIONS)
        with ExitStack() as stack:
            relay = stack.enter_context(running("relay", relay_port, "-m", "bench.relay", str(relay_port), second))
            targets = [Target("relay", ("127.0.0.1", relay_port), relay)]
            switches = {_KPROXY: "on"} | ({_PURE: SWITCHED_OFF} if STATE == "in use" else {})
            for name, switch in switches.items():
                targets.append(stack.enter_context(_kproxy(name, kafka.ports[0], {SWITCH: switch})))
            yield targets


@contextmanager
def _kproxy(name: str, broker_port: int, environment: Mapping[str, str], *options: str) -> Iterator[Target]:
    port, leader_port = free_port(), free_port()
    command = [*kproxy_command(port, leader_port, broker_port), "--instance-id", name, *options]
    with running(name, port, *command, more=environment) as program:
        leader(("127.0.0.1", port))  # makes the port of the broker
        yield Target(name, ("127.0.0.1", port), program)


def _produce(target: Target, client_id: str, records: int, properties: Sequence[str]) -> Transfer:
    host, port = target.address
    command = [find_java(), "-Xmx256m", "-cp", f"{kafka_jars(DEFAULT_VERSION)}/*"]
    command += ["org.apache.kafka.tools.ProducerPerformance", "--topic", _TOPIC, "--num-records", str(records)]
    command += ["--record-size", str(_RECORD_BYTES), "--throughput", "-1", "--bootstrap-server", f"{host}:{port}"]
    command += ["--command-property", *properties, f"client.id={client_id}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE_SECONDS)
    if done.returncode:
        raise LoadError(f"ProducerPerformance: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    # The last line begins with the number of records, then "records sent" and how many that was in a second.
    rate = float(done.stdout.strip().rpartition("records sent, ")[2].split()[0])
    return Transfer(records / rate, records * _RECORD_BYTES, records)
