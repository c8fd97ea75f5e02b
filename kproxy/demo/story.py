"""The steps of the demonstration, as the user sees them."""

import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kproxy.demo.audit import AuditVerdict, judge, read_log
from kproxy.demo.demo_broker import Broker, open_broker
from kproxy.demo.demo_clients import PROTOCOL, Delivery, attempt, receive, send
from kproxy.demo.failure import DemoFailed
from kproxy.demo.sidecar import open_sidecar
from kproxy.demo.signals import wait_for_interrupt

_PARTITIONS: Final = 3
_REFUSAL_SECONDS: Final = 4.0
_REFRESH_RECORDS: Final = 500


def tell(*, records: int, broker: str, keep: bool, console: Console | None = None) -> bool:
    """Run the demonstration; `broker` is `auto`, `kafka` or `fake`.

    Returns:
        Whether all records arrived exactly once and stamped.

    Raises:
        DemoFailed: a step did not work.
    """
    console = console or Console(highlight=False, soft_wrap=True)
    with ExitStack() as stack:
        with console.status("Starting a broker (the first time its jars are downloaded) ..."):
            served = stack.enter_context(open_broker(broker))
        console.print(f"[bold]1.[/] {served.description} listens on {served.bootstrap}.")
        if served.excuse:
            console.print(f"   {served.excuse}", style="dim")
        topic = f"demo-{uuid.uuid4().hex[:8]}"
        served.create_topic(topic, _PARTITIONS)

        _show_refusal(console, served, topic)

        with console.status("Starting kproxy ..."):
            sidecar = stack.enter_context(open_sidecar(served.bootstrap))
        console.print(
            f"[bold]3.[/] kproxy listens on {sidecar.address}. The same client, nothing changed but the address:"
        )
        delivery, consumed = _through_kproxy(console, sidecar.address, topic, records)

        verdict = judge(records, delivery.acknowledged, consumed, read_log(served.bootstrap, topic, _PARTITIONS))
        console.print("[bold]4.[/] Read back from the broker itself, without kproxy:")
        console.print(_table(verdict))
        console.print(
            f"   proxy for Kafka clients  {sidecar.address}\n   metrics                  http://{sidecar.http}/metrics"
        )
        _explain_failures(console, delivery)
        if keep:
            wait_for_interrupt(lambda: console.print("Both stay up until Ctrl-C."))
    return verdict.good


def _show_refusal(console: Console, served: Broker, topic: str) -> None:
    with console.status(f"A producer that speaks the protocol of Kafka {PROTOCOL} tries the broker directly ..."):
        refusal = attempt(served.bootstrap, topic, _REFUSAL_SECONDS)
    if refusal is None:
        raise DemoFailed(f"{served.description} took a record from a {PROTOCOL} producer: there is nothing to show")
    console.print(f"[bold]2.[/] A producer of the Kafka {PROTOCOL} era, directly: [red]refused[/] ({refusal.error}).")
    if refusal.log:
        console.print(f"   Its log says: {refusal.log}", style="dim")


def _through_kproxy(console: Console, address: str, topic: str, records: int) -> tuple[Delivery, list[int]]:
    columns = (TextColumn("   {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        producing = progress.add_task("produce", total=records)
        consuming = progress.add_task("consume", total=records, start=False)
        delivery = send(address, topic, records, lambda done: progress.update(producing, completed=done))
        progress.start_task(consuming)
        consumed = _consume(address, topic, records, lambda done: progress.update(consuming, completed=done))
    return delivery, consumed


def _consume(address: str, topic: str, records: int, progress: Callable[[int], None]) -> list[int]:
    consumed: list[int] = []
    for number in receive(address, topic, f"{topic}-group", records):
        consumed.append(number)
        if len(consumed) % _REFRESH_RECORDS == 0:
            progress(len(consumed))
    progress(len(consumed))
    return consumed


def _table(verdict: AuditVerdict) -> Table:
    table = Table("", "records", "", box=None, pad_edge=True, padding=(0, 2))
    table.columns[1].justify = "right"
    rows = [
        ("sent", verdict.sent, ""),
        ("acknowledged", verdict.acknowledged, ""),
        ("in the log", verdict.in_log, f"in {verdict.batches:,} batches"),
        ("stamped", verdict.stamped, f"{verdict.stamped_batches:,} batches with producer id, epoch and sequence"),
        ("consumed", verdict.consumed, "by the old consumer, through kproxy"),
        ("lost", verdict.lost, ""),
        ("duplicate", verdict.duplicate, ""),
    ]
    for name, count, note in rows:
        bad = count != (0 if name in ("lost", "duplicate") else verdict.sent)
        table.add_row(name, f"[{'bold red' if bad else 'green'}]{count:,}[/]", note)
    return table


def _explain_failures(console: Console, delivery: Delivery) -> None:
    if delivery.failed:
        number, error = next(iter(delivery.failed.items()))
        console.print(f"   {len(delivery.failed):,} records failed, the first of them {number}: {error}", style="red")
