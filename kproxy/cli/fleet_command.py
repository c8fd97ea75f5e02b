"""``kproxy fleet``: all instances that announce themselves on the same brokers."""

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, Final

import click

from kproxy.cli.output import new_console, printable, show
from kproxy.cli.status_commands import WHERE, ask
from kproxy.cli.status_report import LEGACY_CLIENTS, Columns, counted, or_dash, print_rows, span
from kproxy.cli.where import control_options
from kproxy.client import ControlClient

_EXAMPLES: Final = """\b
Examples:
  kproxy fleet
  kproxy fleet --json | jq -r '.instances[] | select(.old) | .instance_id'
  kproxy fleet --json | jq -r '.legacy_clients[].client_id'

\b
Instances announce themselves every minute; fleet.announce.interval.ms says how often."""

_Fact = Mapping[str, Any]


@click.command(epilog=f"{_EXAMPLES}\n\n{WHERE}")
@control_options
def fleet(as_json: bool, **where: Any) -> int:
    """List all instances of kproxy on the same brokers: versions, problems, and the clients that Kafka 4 refuses."""
    return show(ask(where, ControlClient.fleet), as_json, print_fleet)


def print_fleet(found: _Fact) -> None:
    """A table of the instances, one of the clients that Kafka 4 refuses, and what is missing from them."""
    console = new_console()
    # An older kproxy does not say what time it is.
    now = found.get("now_ms") or max((row["announced_ms"] for row in found["instances"]), default=0)
    columns: Columns = {
        "instance": itemgetter("instance_id"),
        "state": lambda row: "; ".join(row["problems"]) or "well",
        "announced": lambda row: f"{span(max(now - row['announced_ms'], 0))} ago",
        "version": lambda row: f"{row['version']}, old" if row["old"] else row["version"],
        "host": itemgetter("host"),
        "clients at": itemgetter("listen"),
        "page": or_dash("http"),
        "connections": counted("connections"),
        "legacy clients": counted("legacy_total"),
        "running for": lambda row: span(max(now - row["started_ms"], 0)),
    }
    if found["instances"]:
        print_rows(console, _title(found), columns, found["instances"], found)
    if found["legacy_clients"]:
        legacy = {**LEGACY_CLIENTS, "instances": counted("instances")}
        print_rows(console, "clients that Kafka 4 refuses", legacy, found["legacy_clients"])
    for line in _remarks(found):
        console.print(printable(line), markup=False)


def _title(found: _Fact) -> str:
    parts = [f"{found['total']:,} instances", f"{found['in_trouble']:,} in trouble"]
    if found["newest_version"]:
        parts.append(f"{found['old']:,} older than {found['newest_version']}")
    return ", ".join(parts)


def _remarks(found: _Fact) -> Iterator[str]:
    if not found["instances"]:
        yield "no instance announces itself: is fleet.announce.interval.ms 0, or __kproxy_fleet not granted?"
    elif not found["announces"]:
        yield "the instance that answers does not announce itself: see its log, and fleet.announce.interval.ms"
    if found["incomplete"]:
        yield "not all announcements could be read in time: instances may be missing"
    if found["ignored"]:
        yield f"{found['ignored']:,} entries of __kproxy_fleet are no announcements, and are ignored"
