"""``kproxy run --dry-run``: what run would do with these options at this cluster; nothing listens."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kproxy.cli.config_commands import report
from kproxy.cli.config_files import load_files
from kproxy.cli.doctor_command import as_rows, exit_code, print_results
from kproxy.cli.output import new_console, new_facts, new_table, show, waiting
from kproxy.config import Address, Config, Loaded
from kproxy.config import show as show_value
from kproxy.control.addresses_in_use import places, refusal
from kproxy.doctor.examination import CheckResult, examine, look, worst
from kproxy.doctor.examined import Examined
from kproxy.doctor.findings import Level, fail
from kproxy.doctor.topic_checks import plans
from kproxy.proxy.routing import preferred_ports

_CHECK: Final = "listeners"
_WELL: Final = (Level.OK, Level.SKIPPED)


def print_dry_run(loaded: Loaded, as_json: bool) -> int:
    """Print it, with what ``kproxy doctor`` finds; the exit code of doctor. StartupError if a file cannot be used."""
    config = loaded.config
    load_files(config)
    with waiting("Asking the brokers"):
        examined = examine(config)
    results = [*_taken(config, examined), *look(examined)]
    found = {
        "options": report(loaded, [])["options"],
        "listeners": dict(_listeners(config)),
        "brokers": [_broker(config, row) for row in examined.brokers],
        "topics": _topics(examined),
        "worst": worst(results),
        "findings": as_rows(results),
    }
    show(found, as_json, lambda _: _print(found, results))
    return exit_code(results)


def _listeners(config: Config) -> Iterator[tuple[str, str]]:
    """Where it would listen, by the option that says so."""
    listen, *others = ((name, str(place)) for name, place in places(config))
    yield listen
    if config.broker_host_pattern is not None:
        yield "broker.host.pattern", f"{config.broker_host_pattern}, at the port of listen"
    else:
        ports = config.broker_port_range
        yield "broker.ports", f"{ports[0]}-{ports[-1]}" if ports else "any free ports"
    yield from others


def _taken(config: Config, examined: Examined) -> Iterator[CheckResult]:
    """The addresses of this host that another program has; a kproxy that runs with these options may."""
    if examined.running is not None:
        return
    for name, address in places(config):
        if isinstance(address, Address) and (error := refusal(address)) is not None:
            advice = f"stop the program that has it, or give {name} another address"
            reason = error.strerror or str(error)
            yield CheckResult(_CHECK, fail(f"run cannot listen at {name} = '{address}': {reason}", advice))


def _broker(config: Config, row: Any) -> dict[str, Any]:
    ports = config.broker_port_range
    port = config.listen.port if config.broker_host_pattern is not None else None
    if port is None and ports:
        port = preferred_ports(ports[0], ports[-1], row.node_id)[0]
    return {
        "id": row.node_id,
        "address": str(row.address),
        "release": row.release or None,
        "error": row.error,
        "port": port,
    }


def _topics(examined: Examined) -> list[dict[str, Any]]:
    """The own topics that the cluster lacks, as kproxy would make them."""
    if not examined.reached:
        return []
    brokers = len(examined.brokers)
    return [
        {
            "name": plan.name,
            "partitions": plan.partitions,
            "replicas": min(plan.replicas, brokers),
            "rights": plan.rights,
        }
        for plan in plans(examined.config)
        if plan.name not in examined.topics
    ]


def _print(found: Mapping[str, Any], results: list[CheckResult]) -> None:
    console = new_console()
    table = new_table("option", "value", "source", title="Options in force that do not have their default")
    for name, row in found["options"].items():
        if row["source"] != "default":
            table.add_row(name, show_value(row["value"]), row["source"])
    console.print(table, markup=False)
    console.print()
    facts = new_facts(title="Where it would listen")
    for name, place in found["listeners"].items():
        facts.add_row(name, place)
    console.print(facts, markup=False)
    console.print()
    table = new_table("broker", "address", "release", "port for clients", title="Brokers")
    for row in found["brokers"]:
        told = row["error"] or f"like Kafka {row['release']}"
        table.add_row(str(row["id"]), row["address"], told, str(row["port"] or "any"))
    console.print(table if found["brokers"] else "Brokers: none answers", markup=False)
    console.print()
    table = new_table(
        "topic", "partitions", "replicas", "rights needed", title="Topics that it would create when it needs them"
    )
    for row in found["topics"]:
        table.add_row(row["name"], str(row["partitions"]), str(row["replicas"]), row["rights"])
    if found["brokers"]:
        console.print(table if found["topics"] else "Topics that it would create: none", markup=False)
        console.print()
    print_results([row for row in results if row.finding.level not in _WELL], results)
