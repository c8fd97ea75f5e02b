"""What ``kproxy status``, ``clients`` and ``lanes`` print for people; what comes in is the API's JSON."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kproxy.cli.output import is_narrow, moment, new_console, new_facts, new_table, printable

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

_Fact: TypeAlias = Mapping[str, Any]
#: The columns of a table by title, each with the function that makes its cell of a row.
Columns: TypeAlias = Mapping[str, Callable[[_Fact], str]]


def print_status(found: _Fact, brokers: _Fact) -> None:
    """A table of name and value, and one of the brokers."""
    table = new_facts(f"kproxy {found['version']}, instance {printable(found['instance_id'])}")
    for name, value in _status_lines(found):
        table.add_row(name, printable(value))
    console = new_console()
    console.print(table, markup=False)
    if found["legacy_clients"]:
        print_rows(console, "clients that Kafka 4 refuses", LEGACY_CLIENTS, found["legacy_clients"])
    print_rows(console, "brokers", _BROKERS, brokers["brokers"], brokers)
    for row in brokers["brokers"]:
        if row.get("down"):  # an older kproxy does not say
            console.print(printable(_down(row)))
    if found["recent_errors"]:
        print_rows(console, "last errors of clients", _ERRORS, found["recent_errors"])


def _status_lines(found: _Fact) -> Iterator[tuple[str, str]]:
    yield "state", "ready" if found["ready"] else f"not ready: {'; '.join(found['reasons'])}"
    for row in found.get("troubles", ()):  # an older kproxy does not say
        yield "wrong now", _trouble(row)
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
    untimed = found["records_matched_untimed"]
    guessed = f", {untimed:,} of them without an equal timestamp" if untimed else ""
    yield "duplicates", f"{found['records_matched']:,} records kept out{guessed}"
    if found["lost_records"]:
        yield "lost", f"{found['lost_records']:,} acknowledged records are missing in brokers' logs"
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


def print_clients(found: _Fact) -> None:
    """A table, one line for each client; a sentence if there are none."""
    print_rows(new_console(), "clients", _CLIENTS, found["clients"], found)


def print_lanes(found: _Fact) -> None:
    """A table, one line for each lane; a sentence if there are none."""
    print_rows(new_console(), "lanes", _LANES, found["lanes"], found)


def print_rows(
    console: "Console", title: str, columns: Columns, rows: Sequence[_Fact], found: _Fact | None = None
) -> None:
    """A table, or a sentence if it has no rows; ``found`` has the ``total`` of which these rows are a part."""
    if not rows:
        console.print(f"no {title}")
        return
    left_out = [name for name in columns if name in _MINOR] if is_narrow(console) else []
    shown = {name: cell for name, cell in columns.items() if name not in left_out}
    table = new_table(*shown, title=title, overflow="fold")
    for row in rows:
        table.add_row(*(printable(cell(row)) for cell in shown.values()))
    console.print(table, markup=False)
    if left_out:
        console.print(f"--wide also prints: {', '.join(left_out)}")
    if found is not None and found["total"] > len(rows):
        console.print(f"and {found['total'] - len(rows):,} more")


def _trouble(row: _Fact) -> str:
    since = "" if row["since_ms"] is None else f" since {moment(row['since_ms'])} UTC"
    return f"{row['what']}{since}{': ' if row['detail'] else ''}{row['detail']}"


def _down(row: _Fact) -> str:
    """A sentence: since when a broker is down, why, and what is tried next."""
    down = row["down"]
    return f"broker {row['node_id']} is down since {moment(down['since_ms'])} UTC: {down['reason']}; {down['next']}"


def _error(row: _Fact) -> str:
    error = row["last_error"]
    return "-" if error is None else f"{error['reason']}, {moment(error['at_ms'])}"


def _versions(versions: Mapping[str, int]) -> str:
    return ", ".join(f"{name} v{version}" for name, version in versions.items()) or "-"


def or_dash(name: str) -> Callable[[_Fact], str]:
    """The cell of a field that may be null or empty."""
    return lambda row: "-" if row[name] in (None, "") else str(row[name])


def counted(name: str) -> Callable[[_Fact], str]:
    """The cell of a count."""
    return lambda row: f"{row[name]:,}"


def _plain(name: str) -> Callable[[_Fact], str]:
    return lambda row: str(row[name])


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


#: Of the clients that Kafka 4 refuses.
LEGACY_CLIENTS: Final[Columns] = {
    "client.id": or_dash("client_id"),
    "software": or_dash("software"),
    "uses what Kafka 4 removed": lambda row: ", ".join(row["removed"]),
    "requests": counted("requests"),
}
_BROKERS: Final[Columns] = {
    "broker": _plain("node_id"),
    "address": itemgetter("address"),
    "state": lambda row: "up" if row["up"] else "down",
    "like Kafka": or_dash("release"),
    "rack": or_dash("rack"),
    "port here": or_dash("port"),
    "connections": _plain("connections"),
    "last error (UTC)": _error,
}
_ERRORS: Final[Columns] = {
    "when (UTC)": lambda row: moment(row["at_ms"]),
    "client.id": itemgetter("client_id"),
    "host": itemgetter("host"),
    "what": itemgetter("reason"),
}
_CLIENTS: Final[Columns] = {
    "client.id": itemgetter("client_id"),
    "software": lambda row: f"{row['software_name']} {row['software_version']}".strip() or "-",
    "host": itemgetter("host"),
    "principal": itemgetter("principal"),
    "connections": _plain("connections"),
    "versions used last": lambda row: _versions(row["versions"]),
    "traffic": lambda row: traffic(row["per_second"]),
    "last error (UTC)": _error,
}
_LANES: Final[Columns] = {
    "producer id": or_dash("producer_id"),
    "epoch": or_dash("epoch"),
    "state": itemgetter("state"),
    "client.id": itemgetter("client_id"),
    "host": itemgetter("host"),
    "partitions": _plain("partitions"),
    "in flight": _plain("in_flight"),
    "unacknowledged": lambda row: span(row["unacknowledged_ms"]) if row["unacknowledged_ms"] else "-",
    "in doubt": _plain("in_doubt"),
}
