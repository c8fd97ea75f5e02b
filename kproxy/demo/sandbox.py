"""The `sandbox` command: a Kafka, kproxy before it and topics to try things with, until Ctrl-C."""

import json
import re
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from kproxy.codec.topic_names import is_legal_topic
from kproxy.demo.broker_option import broker_option
from kproxy.demo.demo_broker import Broker, open_broker
from kproxy.demo.failure import DemoFailed
from kproxy.demo.sidecar import Sidecar, open_kproxy
from kproxy.demo.signals import end_on_signals, wait_for_interrupt

_COUNT: Final = re.compile(r"[1-9][0-9]{0,2}")
_PARTITIONS: Final = 3
_EXAMPLES: Final = """\b
Examples:
  kproxy sandbox
  kproxy sandbox --broker fake --topic readings:6
  kproxy sandbox --json    # addresses for a script, as one line"""


@click.command(epilog=_EXAMPLES)
@broker_option
@click.option(
    "--topic",
    "topics",
    multiple=True,
    default=("orders", "payments"),
    show_default=True,
    metavar="NAME[:PARTITIONS]",
    help=f"A topic to create, with {_PARTITIONS} partitions unless given; may be repeated.",
)
@click.option("--listen", default="127.0.0.1:19092", show_default=True, help="Where clients find kproxy.")
@click.option("--http", default="127.0.0.1:19644", show_default=True, help="Status page and metrics.")
@click.option("--json", "as_json", is_flag=True, help="Print the addresses as one line of JSON.")
def sandbox(broker: str, topics: tuple[str, ...], listen: str, http: str, as_json: bool) -> None:
    """Run a Kafka broker and kproxy on this machine until Ctrl-C, to try your own clients with.

    Transactions are decided in kproxy's own log. Everything is removed at the end.
    """
    wanted = [_parse_topic(topic) for topic in topics]
    end_on_signals()
    console = Console(highlight=False, soft_wrap=True, stderr=as_json)
    try:
        _run(console, broker, wanted, Sidecar(listen, http), as_json)
    except DemoFailed as error:
        raise click.ClickException(str(error)) from error


def _parse_topic(text: str) -> tuple[str, int]:
    name, colon, count = text.partition(":")
    if not is_legal_topic(name) or (colon and not _COUNT.fullmatch(count)):
        raise click.BadParameter(
            f"{text!r}: a name of letters, digits, '.', '_' and '-', and optionally ':' and 1 to 999 partitions",
            param_hint="--topic",
        )
    return name, int(count or _PARTITIONS)


def _run(console: Console, kind: str, topics: list[tuple[str, int]], sidecar: Sidecar, as_json: bool) -> None:
    with ExitStack() as stack:
        with console.status("Starting a broker (the first time its jars are downloaded) ..."):
            broker = stack.enter_context(open_broker(kind))
        for name, partitions in topics:
            broker.create_topic(name, partitions)
        control = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kproxy-sandbox-"))) / "control.sock"
        # a kproxy that is tried at the same broker has the host name
        names = ("--instance-id", "sandbox", "--control-socket", str(control))
        with console.status("Starting kproxy ..."):
            options = ("--bootstrap-servers", broker.bootstrap, *names, "--transactions-home", "kproxy")
            stack.enter_context(open_kproxy(sidecar, *options))
        if as_json:
            line = json.dumps(_addresses(broker, sidecar, control) | {"topics": dict(topics)})
            wait_for_interrupt(lambda: click.echo(line))
        else:
            wait_for_interrupt(lambda: _describe(console, broker, sidecar, control, topics))


def _addresses(broker: Broker, sidecar: Sidecar, control: Path) -> dict[str, object]:
    return {
        "bootstrap.servers": sidecar.address,
        "http": f"http://{sidecar.http}",
        "control.socket": str(control),
        "broker": broker.bootstrap,
    }


def _describe(console: Console, broker: Broker, sidecar: Sidecar, control: Path, topics: list[tuple[str, int]]) -> None:
    if broker.excuse:
        console.print(broker.excuse, style="dim")
    names = ", ".join(f"{name} ({partitions} partitions)" for name, partitions in topics)
    console.print(
        f"kproxy               {sidecar.address}    give this to your clients as bootstrap.servers\n"
        f"status and metrics   http://{sidecar.http}  http://{sidecar.http}/metrics\n"
        f"control socket       {control}\n"
        f"without kproxy       {broker.bootstrap}    {broker.description}\n"
        f"topics               {names}\n"
        "\nTry, in another terminal:\n"
        f"  kproxy status --socket {control}\n"
        f"  kproxy txn list --socket {control}\n"
        "\nCtrl-C stops and removes everything."
    )
