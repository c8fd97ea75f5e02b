"""``kproxy txn``: transactions by hand, through the control API of a kproxy that runs."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from kproxy.cli.groups import help_group
from kproxy.cli.output import moment, new_console, new_facts, new_table, printable, show, stale_text
from kproxy.cli.where import WHERE, control_client, control_options
from kproxy.client import DEFAULT_TIMEOUT_MS
from kproxy.config import Config, load
from kproxy.config.sources import CONFIG_FILE
from kproxy.txn.described import Described, DescribedPart, Listed, OwnerId, Stale, described_json, listed_json

#: The default of the brokers' transaction.max.timeout.ms: longer ones are aborted by their coordinator.
_HANGING_MS = 900_000
_EXAMPLES = """\b
Examples:
  kproxy txn begin --client-id loader --timeout-ms 300000
  kproxy txn commit kproxy-loader --owner 4000:7
  kproxy txn abort kproxy-loader --owner 4000:7
  kproxy txn list --state Ongoing
  kproxy txn describe kproxy-loader --json
  kproxy txn list --url http://127.0.0.1:19645 --token-file /etc/kproxy/token
  kproxy txn find-hanging --bootstrap-servers kafka:9092
  kproxy txn log --bootstrap-servers kafka:9092 --transactional-id kproxy-loader"""


txn = help_group("txn", "Begin, decide and inspect transactions; print their log.", f"{_EXAMPLES}\n\n{WHERE}")


def _show(found: Described, as_json: bool) -> int:
    return show(described_json(found), as_json, lambda _: _print_described(found))


_members = click.option(
    "--member", "members", metavar="NAME", multiple=True, help="A member to decide with; may be repeated."
)
_member = click.option("--member", metavar="NAME", help="Only this member's part, at the kproxy where it began.")
_others = click.option("--abort-others", is_flag=True, help="Abort all else of the id that is prepared or open.")
#: The error for a command that does not say which transaction it means.
_WHICH = "a late request must not touch the next transaction: give --owner, as begin or describe shows it"
_timeout = click.IntRange(1, (1 << 31) - 1)


def _owner_id(ctx: click.Context, parameter: click.Parameter, value: str | None) -> OwnerId | None:
    if value is None:
        return None
    producer_id, _, epoch = value.partition(":")
    if not (producer_id.isascii() and producer_id.isdigit() and epoch.isascii() and epoch.isdigit()):
        raise click.BadParameter(f"{value!r} must be a producer id and an epoch, as 4000:7")
    return OwnerId(int(producer_id), int(epoch))


_owner = click.option(
    "--owner",
    metavar="PRODUCER_ID:EPOCH",
    callback=_owner_id,
    help="Refuse if a newer owner has the id than this one, as begin, initialize or describe shows it.",
)


@txn.command()
@click.option("--client-id", metavar="NAME", help="client.id of the producer whose records belong to the transaction.")
@click.option("--transactional-id", metavar="ID", help='[default: "kproxy-" and the client.id]')
@click.option("--member", metavar="NAME", help="Begin the part of a member, which is decided with the others'.")
@_owner
@click.option(
    "--timeout-ms",
    type=_timeout,
    help=f"After so long without a decision it is aborted.  [default: {DEFAULT_TIMEOUT_MS}; of a member: the id's]",
)
@click.option(
    "--prefer-broker",
    is_flag=True,
    help="With --member, where transactions.home is auto: its part is a transaction of the broker's, if the brokers "
    "serve them, so that consumers without kproxy see it only after the commit.",
)
@control_options
def begin(
    client_id: str | None,
    transactional_id: str | None,
    member: str | None,
    owner: OwnerId | None,
    timeout_ms: int | None,
    prefer_broker: bool,
    as_json: bool,
    **where: Any,
) -> int:
    """Begin a transaction, or a member's part, for all that a client writes."""
    if member is not None:
        if client_id is None or transactional_id is None:
            raise click.UsageError("--member needs --client-id and --transactional-id")
        return _show(
            control_client(**where).begin_member(
                transactional_id,
                member,
                client_id=client_id,
                owner=owner,
                timeout_ms=timeout_ms,
                prefer_broker=prefer_broker,
            ),
            as_json,
        )
    if prefer_broker:
        raise click.UsageError("--prefer-broker is for a --member: transactions.home decides about all others")
    if owner is not None:
        raise click.UsageError("--owner is for a --member: who begins a transaction of its own takes the id")
    if client_id is None and transactional_id is None:
        raise click.UsageError("give --client-id, --transactional-id or both")
    found = control_client(**where).begin(
        client_id=client_id, transactional_id=transactional_id, timeout_ms=timeout_ms or DEFAULT_TIMEOUT_MS
    )
    return _show(found, as_json)


@txn.command()
@click.argument("transactional_id", metavar="ID")
@click.option("--client-id", metavar="NAME", default="", help="Shown as the client.id of the transactional id.")
@click.option(
    "--timeout-ms",
    type=_timeout,
    default=DEFAULT_TIMEOUT_MS,
    show_default=True,
    help="After so long without a decision what members have open is aborted.",
)
@control_options
def initialize(transactional_id: str, client_id: str, timeout_ms: int, as_json: bool, **where: Any) -> int:
    """Take an id for a group of producers: its former owner is fenced, prepared parts stay."""
    found = control_client(**where).initialize(transactional_id, client_id=client_id, timeout_ms=timeout_ms)
    return _show(found, as_json)


@txn.command()
@click.argument("transactional_id", metavar="ID")
@click.option("--batch-id", metavar="NAME", help="Makes the commit safe to repeat: it counts once.")
@_members
@_owner
@_others
@control_options
def commit(
    transactional_id: str,
    batch_id: str | None,
    members: tuple[str, ...],
    owner: OwnerId | None,
    abort_others: bool,
    as_json: bool,
    **where: Any,
) -> int:
    """Commit: its records become visible together. Give --owner, as begin or describe shows it, or --batch-id."""
    if owner is None and batch_id is None:
        raise click.UsageError(f"{_WHICH}, or --batch-id")
    found = control_client(**where).commit(
        transactional_id, batch_id=batch_id, members=members, owner=owner, abort_others=abort_others
    )
    return _show(found, as_json)


@txn.command()
@click.argument("transactional_id", metavar="ID")
@_members
@_owner
@_others
@control_options
def abort(
    transactional_id: str,
    members: tuple[str, ...],
    owner: OwnerId | None,
    abort_others: bool,
    as_json: bool,
    **where: Any,
) -> int:
    """Abort: its records never become visible. Give --owner, as begin or describe shows it."""
    if owner is None:
        raise click.UsageError(_WHICH)
    found = control_client(**where).abort(transactional_id, members=members, owner=owner, abort_others=abort_others)
    return _show(found, as_json)


@txn.command()
@click.argument("transactional_id", metavar="ID")
@_member
@_owner
@click.option("--batch-id", metavar="NAME", help="A commit under another batch id leaves it out.")
@control_options
def prepare(
    transactional_id: str,
    member: str | None,
    owner: OwnerId | None,
    batch_id: str | None,
    as_json: bool,
    **where: Any,
) -> int:
    """Make it durable: it waits for a commit or an abort, however long. Give --owner, or --member."""
    client = control_client(**where)
    if member is not None:
        return _show(client.prepare_member(transactional_id, member), as_json)
    if owner is None:
        raise click.UsageError(f"{_WHICH}, or --member")
    return _show(client.prepare(transactional_id, owner=owner, batch_id=batch_id), as_json)


@txn.command("abandon")
@click.argument("transactional_id", metavar="ID")
@click.option("--member", metavar="NAME", required=True, help="The member, at the kproxy where it began.")
@control_options
def abandon(transactional_id: str, member: str, as_json: bool, **where: Any) -> int:
    """Abort the open part of one member; the others continue."""
    return _show(control_client(**where).abort_member(transactional_id, member), as_json)


@txn.command()
@click.argument("transactional_id", metavar="ID")
@control_options
def describe(transactional_id: str, as_json: bool, **where: Any) -> int:
    """Show one transactional id and its transaction."""
    found = control_client(**where).describe(transactional_id)
    _say_stale(found.stale)
    return _show(found, as_json)


@txn.command()
@click.argument("producer_id", metavar="PRODUCER_ID", type=click.IntRange(1, (1 << 63) - 1))
@control_options
def reject(producer_id: int, as_json: bool, **where: Any) -> int:
    """Pass over what readers wait for, though its transaction log was lost."""
    rejected = control_client(**where).reject(producer_id)
    text = f"what was written under producer id {rejected} is aborted"
    return show({"producer_id": rejected}, as_json, lambda _: click.echo(text))


@txn.command(name="list")
@click.option("--state", "states", metavar="STATE", multiple=True, help="Only those in this state; may be repeated.")
@click.option("--undecided", is_flag=True, help="Only those that readers wait for: open, or with an undecided part.")
@control_options
def list_ids(states: tuple[str, ...], undecided: bool, as_json: bool, **where: Any) -> int:
    """List all transactional ids."""
    rows = control_client(**where).list(states, undecided=undecided)
    _say_stale(rows.stale)
    return show([listed_json(row) for row in rows], as_json, lambda _: _print_list(rows))


_bootstrap = click.option(
    "--bootstrap-servers", metavar="LIST", help="Brokers to ask. [environment: KPROXY_BOOTSTRAP_SERVERS]"
)
_config = click.option(
    "--config", metavar="FILE", help="kproxy's own, for its bootstrap.servers. [environment: KPROXY_CONFIG]"
)


def _loaded(bootstrap_servers: str | None, config: str | None) -> Config:
    given = {"bootstrap.servers": bootstrap_servers, CONFIG_FILE: config}
    return load({name: value for name, value in given.items() if value is not None}, dict(os.environ))


@txn.command("find-hanging")
@_bootstrap
@_config
@click.option(
    "--older-than-ms",
    type=click.IntRange(0),
    default=_HANGING_MS,
    show_default=True,
    help="Pass over transactions that were written to later: they may still end. [unit: ms]",
)
@control_options
def find_hanging(
    bootstrap_servers: str | None, config: str | None, older_than_ms: int, as_json: bool, **where: Any
) -> int:
    """Find transactions that nothing will end, at the brokers and at kproxy; readers wait for them."""
    from kproxy.cli.txn_hanging import print_hanging

    loaded = _loaded(bootstrap_servers, config)
    return print_hanging(loaded, control_client(**where), older_than_ms=older_than_ms, as_json=as_json)


@txn.command()
@_bootstrap
@_config
@click.option("--transactional-id", metavar="ID", help="Only what concerns this id.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition of the log.")
@click.option("--follow", is_flag=True, help="Then print new records as they come, until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each record.")
def log(
    bootstrap_servers: str | None,
    config: str | None,
    transactional_id: str | None,
    partition: int | None,
    follow: bool,
    as_json: bool,
) -> int:
    """Print the transaction log, from the brokers themselves."""
    from kproxy.cli.txn_log import RecordFilter, print_log

    loaded = _loaded(bootstrap_servers, config)
    return print_log(loaded, RecordFilter(transactional_id, partition), follow=follow, as_json=as_json)


def _say_stale(stale: Stale | None) -> None:
    """Says on stderr how old the answer is, if it is not the state of now: stdout may be JSON."""
    if stale is not None:
        click.echo(stale_text(stale), err=True)


def _print_list(rows: Sequence[Listed]) -> None:
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


def _print_described(found: Described) -> None:
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


def _part(part: DescribedPart) -> str:
    state = "prepared" if part.prepared else "open"
    until = f", aborted by the broker at {moment(part.expires_ms)}" if part.expires_ms is not None else ""
    batch = f", batch {part.batch_id}" if part.batch_id is not None else ""
    return f"{part.name or 'owner'}: {state}, id {part.producer_id}, epoch {part.producer_epoch}{batch}{until}"


def _joined(words: Iterable[str]) -> str:
    return "\n".join(words) or "-"
