"""What ``kproxy txn`` prints for people."""

from collections.abc import Iterable, Iterator, Sequence

from kproxy.cli.output import moment, new_console, new_facts, new_table, printable
from kproxy.txn.described import Described, Listed, Part


def print_list(rows: Sequence[Listed]) -> None:
    """A table, one line for each transactional id; a sentence if there are none."""
    if not rows:
        new_console().print("no transactional ids")
        return
    table = new_table(
        "transactional id", "state", "client.id", "producer id", "epoch", "began (UTC)", "instance", "undecided parts"
    )
    for row in rows:
        table.add_row(
            *map(
                printable,
                (
                    row.transactional_id,
                    row.state,
                    row.client_id,
                    str(row.producer_id),
                    str(row.producer_epoch),
                    moment(row.started_ms),
                    row.instance_id,
                    str(row.undecided_parts),
                ),
            )
        )
    new_console().print(table, markup=False)


def print_described(found: Described) -> None:
    """A table of name and value."""
    table = new_facts()
    for name, value in _lines(found):
        table.add_row(name, printable(value))
    new_console().print(table, markup=False)


def _lines(found: Described) -> Iterator[tuple[str, str]]:
    yield "transactional id", found.transactional_id
    yield "state", found.state
    yield "client.id", found.client_id
    yield "owner", f"{found.producer_id}:{found.producer_epoch}"
    yield "began (UTC)", moment(found.started_ms)
    yield "time-out", f"{found.timeout_ms} ms"
    yield "partitions", _joined(f"{topic}-{partition}" for topic, partition in sorted(found.partitions))
    yield "groups", _joined(found.groups)
    yield "parts", _joined(map(_part, found.parts))
    yield "instance", found.instance_id
    if found.last is None:
        yield "last decision", "-"
    else:
        what = "commit" if found.last.committed else "abort"
        reason = f" ({found.last.reason})" if found.last.reason else ""
        yield "last decision", f"{what}{reason}, {moment(found.last.at_ms)}"


def _part(part: Part) -> str:
    state = "prepared" if part.prepared else "open"
    until = f", aborted by the broker at {moment(part.expires_ms)}" if part.expires_ms is not None else ""
    return f"{part.name or 'owner'}: {state}, id {part.producer_id}, epoch {part.producer_epoch}{until}"


def _joined(words: Iterable[str]) -> str:
    return "\n".join(words) or "-"
