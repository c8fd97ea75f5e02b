"""What ``kproxy status``, ``clients`` and ``lanes`` print for people; what comes in is the API's JSON."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kproxy.cli.tables import is_narrow, moment, new_console, new_facts, new_table, printable

if TYPE_CHECKING:
    from rich.console import Console

_UNITS: Final = ("B", "kB", "MB", "GB")
_STEP: Final = 1000
_BARS: Final = "▁▂▃▄▅▆▇█"
_BARS_SHOWN: Final = 45
#: From the largest: seconds in each.
_SPANS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))

#: Left out of tables on a narrow terminal.
_MINOR: Final = ("host", "principal", "connections", "rack", "port here", "epoch", "partitions")

_Fact = Mapping[str, Any]


def print_status(found: _Fact, brokers: _Fact) -> None:
    """A table of name and value, and one of the brokers."""
    table = new_facts(f"kproxy {found['version']}, instance {printable(found['instance_id'])}")
    for name, value in _status_lines(found):
        table.add_row(name, printable(value))
    console = new_console()
    console.print(table, markup=False)
    if found["legacy_clients"]:
        rows = [
            (row["client_id"] or "-", row["software"] or "-", ", ".join(row["removed"]), f"{row['requests']:,}")
            for row in found["legacy_clients"]
        ]
        names = ("client.id", "software", "uses what Kafka 4 removed", "requests")
        print_rows(console, "clients that Kafka 4 refuses", names, rows)
    _print_brokers(console, brokers)
    _print_errors(console, found)


def _status_lines(found: _Fact) -> Iterator[tuple[str, str]]:
    yield "state", "ready" if found["ready"] else f"not ready: {'; '.join(found['reasons'])}"
    yield "running for", span(found["now_ms"] - found["started_ms"])
    yield "clients at", f"{found['listen']}, brokers from {found['bootstrap_servers']}"
    yield "connections", f"{found['connections']:,} of at most {found['max_connections']:,}"
    if found["legacy_total"]:
        yield "Kafka 4 refuses", f"{found['legacy_total']:,} client{'s' * (found['legacy_total'] != 1)}, listed below"
    yield "traffic", traffic(found["per_second"])
    yield "requests/s", _bars(found["history"]["requests"])
    yield "producer ids", f"{found['lanes']:,} in use, {found['in_flight']:,} batches in flight"
    yield "unacknowledged", f"for {span(found['unacknowledged_ms'])}" if found["unacknowledged_ms"] else "nothing"
    yield "in doubt", f"{found['in_doubt']:,} batches"
    yield "duplicates", f"{found['records_matched']:,} records kept out"
    yield "buffers", f"{size(found['buffered_bytes'])} of {size(found['buffer_memory'])}"
    open_now = found["transactions"]
    oldest = f", the oldest for {span(open_now['oldest_open_ms'])}" if open_now["open"] else ""
    yield "transactions", f"{open_now['open']} open{oldest}, {open_now['prepared']} prepared"
    yield "decided", f"{open_now['commits']:,} committed, {open_now['aborts']:,} aborted"
    if open_now["unknown_producer_ids"]:
        yield "unknown to log", f"{open_now['unknown_producer_ids']} producer ids: see kproxy txn reject"
    for title, name in (
        ("refusals", "refusals"),
        ("not let in", "connections_refused"),
        ("broker errors", "broker_errors"),
    ):
        if found[name]:
            yield title, ", ".join(f"{reason} {count:,}" for reason, count in sorted(found[name].items()))


def _print_brokers(console: "Console", brokers: _Fact) -> None:
    rows = [
        (
            str(row["node_id"]),
            row["address"],
            "up" if row["up"] else "down",
            row["release"] or "-",
            row["rack"] or "-",
            _or_dash(row["port"]),
            str(row["connections"]),
            _error(row),
        )
        for row in brokers["brokers"]
    ]
    print_rows(
        console,
        "brokers",
        ("broker", "address", "state", "like Kafka", "rack", "port here", "connections", "last error (UTC)"),
        rows,
        brokers,
    )


def _print_errors(console: "Console", found: _Fact) -> None:
    if found["recent_errors"]:
        rows = [(moment(row["at_ms"]), row["client_id"], row["host"], row["reason"]) for row in found["recent_errors"]]
        print_rows(console, "last errors of clients", ("when (UTC)", "client.id", "host", "what"), rows)


def print_clients(found: _Fact) -> None:
    """A table, one line for each client; a sentence if there are none."""
    rows = [
        (
            row["client_id"],
            f"{row['software_name']} {row['software_version']}".strip() or "-",
            row["host"],
            row["principal"],
            str(row["connections"]),
            _versions(row["versions"]),
            traffic(row["per_second"]),
            _error(row),
        )
        for row in found["clients"]
    ]
    names = (
        "client.id",
        "software",
        "host",
        "principal",
        "connections",
        "versions used last",
        "traffic",
        "last error (UTC)",
    )
    print_rows(new_console(), "clients", names, rows, found)


def print_lanes(found: _Fact) -> None:
    """A table, one line for each lane; a sentence if there are none."""
    rows = [
        (
            _or_dash(row["producer_id"]),
            _or_dash(row["epoch"]),
            row["state"],
            row["client_id"],
            row["host"],
            str(row["partitions"]),
            str(row["in_flight"]),
            span(row["unacknowledged_ms"]) if row["unacknowledged_ms"] else "-",
            str(row["in_doubt"]),
        )
        for row in found["lanes"]
    ]
    names = (
        "producer id",
        "epoch",
        "state",
        "client.id",
        "host",
        "partitions",
        "in flight",
        "unacknowledged",
        "in doubt",
    )
    print_rows(new_console(), "lanes", names, rows, found)


def print_rows(
    console: "Console", title: str, names: Sequence[str], rows: Sequence[Sequence[str]], found: _Fact | None = None
) -> None:
    """A table, or a sentence if it has no rows; ``found`` has the ``total`` of which these rows are a part."""
    if not rows:
        console.print(f"no {title}")
        return
    left_out = [name for name in names if name in _MINOR] if is_narrow(console) else []
    table = new_table(*(name for name in names if name not in left_out), title=title, overflow="fold")
    for row in rows:
        cells = zip(names, row, strict=True)
        table.add_row(*(printable(text) for name, text in cells if name not in left_out))
    console.print(table, markup=False)
    if left_out:
        console.print(f"--wide also prints: {', '.join(left_out)}")
    if found is not None and found["total"] > len(rows):
        console.print(f"and {found['total'] - len(rows):,} more")


def _error(row: _Fact) -> str:
    error = row["last_error"]
    return "-" if error is None else f"{error['reason']}, {moment(error['at_ms'])}"


def _versions(versions: Mapping[str, int]) -> str:
    return ", ".join(f"{name} v{version}" for name, version in versions.items()) or "-"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def traffic(rate: _Fact) -> str:
    """Requests and bytes a second."""
    return f"{rate['requests']:,.0f}/s, in {size(rate['bytes_in'])}/s, out {size(rate['bytes_out'])}/s"


def size(count: float) -> str:
    """Bytes with three digits: 2.5 MB."""
    for unit in _UNITS[:-1]:
        if count < _STEP:
            return f"{count:.3g} {unit}"
        count /= _STEP
    return f"{count:,.3g} {_UNITS[-1]}"


def span(ms: int) -> str:
    """A time of two units at most: 2 h 5 min."""
    if ms < _STEP:
        return f"{ms} ms"
    words: list[str] = []
    left = ms // _STEP
    for seconds, unit in _SPANS:
        count, left = divmod(left, seconds)
        if count or words:
            words.append(f"{count} {unit}")
    return " ".join(word for word in words[:2] if not word.startswith("0 "))


def _bars(values: Sequence[float]) -> str:
    shown = values[-_BARS_SHOWN:]
    top = max(shown, default=0.0)
    if not top:
        return "-"
    last = len(_BARS) - 1
    return f"{''.join(_BARS[round(last * value / top)] for value in shown)} at most {top:,.0f}"
