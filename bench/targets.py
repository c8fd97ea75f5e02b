"""The three ways to the broker: directly, through the bare relay, through kproxy."""

import contextlib
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass

from bench import payloads
from bench.load import Address, Connection, LoadError
from bench.processes import Program, free_port, running
from kproxy.budget import unbounded
from kproxy.codec._generated.metadata import MetadataResponse

_HOST = "127.0.0.1"
_CORRELATION_BYTES = 4
_READY_SECONDS = 60.0


@dataclass(frozen=True)
class Target:
    """Where a client connects, and the process in between (None: there is none)."""

    name: str
    address: Address
    program: Program | None = None

    def cpu_seconds(self) -> float:
        """CPU time of what is in between so far, in seconds."""
        return self.program.cpu_seconds() if self.program else 0.0


#: The sink keeps no log, in which producer ids could be recorded or unconfirmed batches be searched. ``bench.doubts``
#: measures both on a real broker.
FORGETFUL = ("--crash-recovery-enable", "false", "--retry-window-ms", "1")


@contextlib.contextmanager
def open_sink(stall_after_bytes: int | None = None) -> Iterator[int]:
    """Run the sink broker while the block lasts; gives its port."""
    port = free_port()
    command = ["-m", "bench.sink", str(port)]
    if stall_after_bytes is not None:
        command.append(str(stall_after_bytes))
    with running("sink", port, *command):
        yield port


@contextlib.contextmanager
def open_kproxy(broker_port: int, *options: str, tls: ssl.SSLContext | None = None) -> Iterator[Target]:
    """Run kproxy in front of the broker; the target's address is the one that kproxy gives for the topics' leader.

    `tls` is what clients need if the options have kproxy listen with TLS.
    """
    port, leader_port = free_port(), free_port()
    with running("kproxy", port, *kproxy_command(port, leader_port, broker_port), *options) as program:
        yield Target("kproxy", leader((_HOST, port), tls), program)


def kproxy_command(port: int, leader_port: int, broker_port: int) -> list[str]:
    """The arguments that make this Python a kproxy on two ports, its own and its broker's; later ones replace these."""
    command = ["-m", "kproxy", "run", "--bootstrap-servers", f"{_HOST}:{broker_port}", "--listen", f"{_HOST}:{port}"]
    return [*command, "--broker-ports", f"{leader_port}-{leader_port}", "--http", "off", "--log-level", "error"]


@contextlib.contextmanager
def open_targets(broker_port: int) -> Iterator[list[Target]]:
    """All three ways to the broker on `broker_port`."""
    relay_port = free_port()
    with (
        running("relay", relay_port, "-m", "bench.relay", str(relay_port), str(broker_port)) as relay,
        open_kproxy(broker_port, *FORGETFUL) as kproxy,
    ):
        yield [Target("direct", (_HOST, broker_port)), Target("relay", (_HOST, relay_port), relay), kproxy]


def leader(bootstrap: Address, tls: ssl.SSLContext | None = None) -> Address:
    """Ask `bootstrap` who leads the topics, which the broker makes if need be; waits up to 60 s for a response.

    Raises:
        LoadError: nobody leads them.
    """
    frame = payloads.metadata_frame(list(payloads.RECORD_BYTES))
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(LoadError, OSError), Connection(bootstrap, tls) as connection:
            answer = MetadataResponse.decode(bytes(connection.ask(frame)), 1, unbounded(), _CORRELATION_BYTES)
            if answer.brokers and not any(topic.error_code for topic in answer.topics):
                return answer.brokers[0].host, answer.brokers[0].port
        time.sleep(0.1)
    raise LoadError(f"no leader for the topics at {bootstrap[0]}:{bootstrap[1]}")
