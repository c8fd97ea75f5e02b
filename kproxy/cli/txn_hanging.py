"""``kproxy txn find-hanging``: what read_committed consumers wait for, at the brokers and at kproxy."""

import time
from typing import Any, Final

import trio

from kproxy.cli.output import moment, new_console, new_table, printable, show, stale_text, waiting
from kproxy.client import ControlClient
from kproxy.config import Config
from kproxy.config import show as show_value
from kproxy.control.logging import configure_logging
from kproxy.doctor.hanging_transactions import Hanging, find_hanging
from kproxy.errors import KproxyError
from kproxy.net.broker_sasl.sasl_networks import open_networks
from kproxy.net.brokers.cluster import Cluster
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.stats import Stats

_COLUMNS: Final = ("partition", "producer id", "epoch", "first offset", "last write (UTC)")


def print_hanging(config: Config, client: ControlClient, *, older_than_ms: int, as_json: bool) -> int:
    """Prints what is older at the brokers and at the kproxy of ``client``; the exit code. KproxyError: no broker."""
    configure_logging("warning", "console")
    with waiting("Asking the leaders of all partitions"):
        at_brokers, unasked = trio.run(_ask_brokers, config, older_than_ms)
    bootstrap = show_value(config.bootstrap_servers)
    found: dict[str, Any] = {
        "brokers": [row._asdict() | {"abort": row.abort_command(bootstrap)} for row in at_brokers],
        "unasked": unasked,
        **_ask_kproxy(client, older_than_ms),
    }
    return show(found, as_json, _print)


async def _ask_brokers(config: Config, older_than_ms: int) -> tuple[list[Hanging], list[str]]:
    stats = Stats()
    cluster = Cluster(config, stats.upstream, ClusterMap(), open_networks(config, stats).own)
    try:
        return await find_hanging(cluster, older_than_ms=older_than_ms)
    finally:
        cluster.close()


def _ask_kproxy(client: ControlClient, older_than_ms: int) -> dict[str, Any]:
    latest = time.time() * 1000 - older_than_ms
    try:
        found = client.list(undecided=True)
    except KproxyError as error:
        return {"kproxy": None, "kproxy_error": str(error)}
    rows = [row for row in found if row.started_ms is None or row.started_ms <= latest]
    return {"kproxy": [row._asdict() for row in rows], "kproxy_error": stale_text(found.stale) if found.stale else None}


def _print(found: dict[str, Any]) -> None:
    console = new_console()
    if found["brokers"]:
        table = new_table(*_COLUMNS, title="at the brokers")
        for row in found["brokers"]:
            place = f"{row['topic']}-{row['partition']}"
            numbers = (str(row["producer_id"]), str(row["producer_epoch"]), str(row["start_offset"]))
            table.add_row(*map(printable, (place, *numbers, moment(row["last_write_ms"]))))
        console.print(table, markup=False)
        console.print("No coordinator will end these transactions. End each one:")
        for row in found["brokers"]:
            console.print(f"  {row['abort']}", markup=False, soft_wrap=True)
    else:
        console.print("at the brokers: nothing hangs")
    if found["unasked"]:
        console.print(f"not asked, no leader or no answer: {', '.join(found['unasked'])}", markup=False)
    if found["kproxy"] is None:
        console.print(f"at kproxy: not asked: {found['kproxy_error']}", markup=False)
        return
    if found["kproxy_error"] is not None:
        console.print(f"at kproxy: {found['kproxy_error']}", markup=False)
    for row in found["kproxy"]:
        state = f"{row['state']}, undecided parts: {row['undecided_parts']}, since {moment(row['started_ms'])} UTC"
        console.print(printable(f"at kproxy: {row['transactional_id']}: {state}; see kproxy txn describe"))
    if not found["kproxy"]:
        console.print("at kproxy: nothing waits so long")
