"""A real Apache Kafka for tests, benchmarks and the demo: brokers as child processes on loopback ports.

No container and no installation: the jars come from Maven (see ``kproxy.testing.maven``). One broker is ready in
about 4 s. Every broker is also a controller; brokers before Kafka 3 have a ZooKeeper. The cluster lives in one
temporary directory and dies with its parent.
"""

import atexit
import base64
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from kproxy.testing.class_archive import archive_of, sharing
from kproxy.testing.kafka_place import Place
from kproxy.testing.kafka_sasl import LISTENER, sasl_settings, scram_arguments
from kproxy.testing.maven import find_java, kafka_jars
from kproxy.testing.probe import broker_count
from kproxy.testing.tools import Unavailable

__all__ = ["DEFAULT_VERSION", "PATIENT", "REPLICATED", "RealKafka", "die_with_parent"]

DEFAULT_VERSION: Final = "4.4.0"
_READY_TIMEOUT_S: Final = 90.0
_STOP_TIMEOUT_S: Final = 10.0
_PR_SET_PDEATHSIG: Final = 1
_BEFORE_KRAFT: Final = ("0.", "1.", "2.")
_PROTOCOLS: Final = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL"
_NO_ADMIN_PORT: Final = "-Dzookeeper.admin.enableServer=false"  # it would be 8080, for each of several
_SMALL_JVM: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_QUIET: Final = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")
DEFAULT_JVM_OPTIONS: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""For tests: a small heap and the quick compiler. A benchmark gives its own (``-Xmx2g -XX:+UseG1GC``)."""

REPLICATED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
)
"""Settings for three brokers: every topic has three replicas, and what is acknowledged is in two of them."""
PATIENT: Final[Mapping[str, str]] = MappingProxyType(
    {"broker.session.timeout.ms": "60000", "broker.heartbeat.interval.ms": "2000"}
)
"""Settings for brokers that no test harms: one that has no processor for some seconds is not taken for dead."""


def new_cluster_id() -> str:
    """A random cluster id in Kafka's form; none begins with a dash, which its tools take for an option (``Uuid``)."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not made.startswith("-"):
            return made


class RealKafka:
    """A cluster of real Kafka brokers; use it as a context manager, or call ``start`` and ``stop``.

    :param brokers: how many; node ids are 1 to ``brokers``.
    :param version: the Kafka release.
    :param config: broker settings that override the defaults, for all brokers.
    :param directory: where to keep configuration, data and logs; a temporary one, removed by ``stop``, if omitted.
    :param jvm_options: options for the brokers' Java.
    :param ssl: broker settings of a second listener, which speaks TLS; see ``ssl_bootstrap``.
    :param advertised: the ports that brokers name to clients and to each other, of relays before them; else their own.
    :param sasl: names and passwords for a listener that asks for SASL, over TLS if ``ssl`` is given, too; see
        ``sasl_bootstrap``.
    """

    def __init__(
        self,
        brokers: int = 1,
        version: str = DEFAULT_VERSION,
        config: Mapping[str, str] | None = None,
        directory: Path | None = None,
        jvm_options: Sequence[str] = DEFAULT_JVM_OPTIONS,
        ssl: Mapping[str, str] | None = None,
        sasl: Mapping[str, str] | None = None,
        advertised: Sequence[int] = (),
    ) -> None:
        self._version = version
        self._advertised = advertised
        self._users = sasl or {}
        self._config = {**(ssl or {}), **(sasl_settings(sasl) if sasl else {}), **(config or {})}
        self._sasl_protocol = "SASL_PLAINTEXT" if ssl is None else "SASL_SSL"
        self._jvm_options = tuple(jvm_options)
        self._temporary = tempfile.TemporaryDirectory(prefix="kproxy-kafka-") if directory is None else None
        self._directory = Path(self._temporary.name) if self._temporary else Path(directory or ".")
        listeners = 2 + (ssl is not None) + (sasl is not None)
        self._reserved = [_reserve_port() for _ in range(listeners * brokers)]
        ports = [reserved.getsockname()[1] for reserved in self._reserved]
        self._ports = ports[:brokers]
        self._controller_ports = ports[brokers : 2 * brokers]
        self._sasl_ports = ports[-brokers:] if sasl is not None else []
        self._ssl_ports = ports[2 * brokers : 3 * brokers] if ssl is not None else []
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * brokers
        self._with_zookeeper = version.startswith(_BEFORE_KRAFT)
        self._zookeeper: subprocess.Popen[bytes] | None = None
        self._java = ""
        self._classpath = ""
        self._sharing: list[str] = []

    @property
    def brokers(self) -> int:
        """How many brokers the cluster has, dead ones included."""
        return len(self._ports)

    @property
    def ports(self) -> tuple[int, ...]:
        """The port of each broker on 127.0.0.1, in the order of node ids (which begin at 1)."""
        return tuple(self._ports)

    @property
    def bootstrap(self) -> str:
        """``host:port`` of every broker, joined by commas: what clients call ``bootstrap.servers``."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    @property
    def ssl_bootstrap(self) -> str:
        """As ``bootstrap``, of the listeners that speak TLS."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ssl_ports)

    @property
    def sasl_bootstrap(self) -> str:
        """As ``bootstrap``, of the listeners that ask for SASL."""
        return ",".join(f"127.0.0.1:{port}" for port in self._sasl_ports)

    @property
    def zookeeper(self) -> str:
        """``host:port`` of the ZooKeeper that brokers before Kafka 3 have."""
        return f"127.0.0.1:{self._controller_ports[0]}"

    @property
    def directory(self) -> Path:
        """Where the cluster keeps its configuration, data and logs (``broker-<node id>.log``)."""
        return self._directory

    def pid(self, index: int) -> int | None:
        """Return the process id of the broker at ``index`` (from 0), or None when it is down."""
        process = self._processes[index]
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> Self:
        """Resolve the jars, format the storage, start every broker and wait until all serve.

        :raises Unavailable: no Java or Maven, no artefacts, or a broker that does not come up.
        """
        atexit.register(self.stop)
        try:
            self._java = find_java()
            jars = kafka_jars(self._version)
            # Of two places to log to the first one counts: log4j, which Kafka 2 brings along, writes nothing.
            self._classpath = f"{jars}/slf4j-simple-1.7.36.jar:{jars}/*" if self._with_zookeeper else f"{jars}/*"
            self._sharing = sharing(archive_of(f"kafka-{self._version}", self._java))
            self._directory.mkdir(parents=True, exist_ok=True)
            self._write_settings()
            if self._with_zookeeper:
                self._start_zookeeper()
            else:
                self._format()
            for index in range(self.brokers):
                self._spawn(index)
            self._wait_ready(range(self.brokers), self.brokers)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill every broker and remove the temporary directory; harmless when called again."""
        atexit.unregister(self.stop)
        for index in range(self.brokers):
            self.kill(index)
        if self._zookeeper is not None:
            self._zookeeper.kill()
            self._zookeeper.wait()
            self._zookeeper = None
        for reserved in self._reserved:
            reserved.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def kill(self, index: int) -> None:
        """End the broker at ``index`` (from 0) at once, as ``kill -9`` does; its data stays on disk."""
        process = self._processes[index]
        if process is not None:
            process.kill()
            process.wait()
            self._processes[index] = None

    def terminate(self, index: int, patience_s: float = _STOP_TIMEOUT_S) -> None:
        """Shut the broker at ``index`` down in order (leaders move away first); kill it if that takes longer."""
        process = self._processes[index]
        if process is not None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience_s)
            self.kill(index)

    def restart(self, index: int) -> None:
        """Start the broker at ``index`` again (killing it if it runs) on its old port and wait until it serves.

        :raises Unavailable: it does not come up.
        """
        self.kill(index)
        self._spawn(index)
        self._wait_ready([index], sum(process is not None for process in self._processes))

    def pause(self, index: int) -> None:
        """Freeze the broker at ``index``: its connections stay open and nothing answers."""
        self._signal(index, signal.SIGSTOP)

    def resume(self, index: int) -> None:
        self._signal(index, signal.SIGCONT)

    def log_tail(self, index: int, lines: int = 40) -> str:
        """Return the last lines that the broker at ``index`` printed."""
        path = self._directory / f"broker-{index + 1}.log"
        if not path.exists():
            return ""
        return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _signal(self, index: int, number: signal.Signals) -> None:
        process = self._processes[index]
        if process is None:
            raise Unavailable(f"broker {index} is not running")
        process.send_signal(number)

    def _server_properties(self, index: int) -> str:
        node = index + 1
        ports = {"PLAINTEXT": self._ports, "SSL": self._ssl_ports, LISTENER: self._sasl_ports}
        listeners = {name: taken[index] for name, taken in ports.items() if taken}
        place = Place(node, self.brokers, listeners, self._controller_ports, self._directory / f"data-{node}")
        settings = place.with_zookeeper() if self._with_zookeeper else place.in_kraft()
        settings |= {"listener.security.protocol.map": f"{_PROTOCOLS},{LISTENER}:{self._sasl_protocol}"}
        if self._advertised:
            settings |= {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._advertised[index]}"}
        return "".join(f"{key}={value}\n" for key, value in {**settings, **self._config}.items())

    def _write_settings(self) -> None:
        for index in range(self.brokers):
            self._settings_of(index).write_text(self._server_properties(index), encoding="utf-8")

    def _settings_of(self, index: int) -> Path:
        return self._directory / f"server-{index + 1}.properties"

    def _start_zookeeper(self) -> None:
        """Start it and wait until it listens. SCRAM users would have to be stored in it: that is left out."""
        port, data = self._controller_ports[0], str(self._directory / "zookeeper")
        arguments = ["org.apache.zookeeper.server.ZooKeeperServerMain", str(port), data]
        self._zookeeper = self._launch(arguments, "zookeeper", (*_SMALL_JVM, _NO_ADMIN_PORT))
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not _listens(port):
            if self._zookeeper.poll() is not None or time.monotonic() > deadline:
                text = (self._directory / "zookeeper.log").read_text(encoding="utf-8", errors="replace")
                raise Unavailable(f"ZooKeeper does not start:\n{text[-3000:]}")
            time.sleep(0.05)

    def _format(self) -> None:
        """Format the storage of all brokers, side by side."""
        cluster_id = new_cluster_id()
        tools = []
        for index in range(self.brokers):
            arguments = ["kafka.tools.StorageTool", "format", "-g", "-t", cluster_id]
            arguments += ["-c", str(self._settings_of(index))]
            arguments += scram_arguments(self._users)
            tools.append(self._launch(arguments, f"broker-{index + 1}", _SMALL_JVM))
        for index, tool in enumerate(tools):
            if tool.wait(_READY_TIMEOUT_S) != 0:
                raise Unavailable(f"cannot format the storage of broker {index}:\n{self.log_tail(index)}")

    def _spawn(self, index: int) -> None:
        arguments = ["kafka.Kafka", str(self._settings_of(index))]
        self._processes[index] = self._launch(arguments, f"broker-{index + 1}", self._jvm_options)

    def _launch(self, arguments: Sequence[str], name: str, jvm_options: Sequence[str]) -> subprocess.Popen[bytes]:
        command = [self._java, *jvm_options, *self._sharing, *_QUIET, "-cp", self._classpath, *arguments]
        with (self._directory / f"{name}.log").open("ab") as output:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, preexec_fn=die_with_parent()
            )

    def _wait_ready(self, indexes: Sequence[int], expected: int) -> None:
        """Wait until each broker answers requests and knows ``expected`` live brokers."""
        deadline = time.monotonic() + _READY_TIMEOUT_S
        for index in indexes:
            while broker_count("127.0.0.1", self._ports[index]) < expected:
                process = self._processes[index]
                if process is None or process.poll() is not None:
                    raise Unavailable(f"broker {index} ended while starting:\n{self.log_tail(index)}")
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"broker {index} not ready after {_READY_TIMEOUT_S:.0f} s:\n{self.log_tail(index)}"
                    )
                time.sleep(0.05)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


def _reserve_port() -> socket.socket:
    """Hold a free loopback port: bound but never listening, so that only an address-reusing server can share it.

    Kept open for the cluster's life, so that nobody takes the port of a broker that is down for a moment.
    """
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder


def die_with_parent() -> Callable[[], None] | None:
    """Return what the child runs before Java: ask Linux to kill it when its parent dies.

    The kernel means the parent *thread*, so only the main thread may ask; else ``atexit`` must do.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return ask
