"""The troubles of a running kproxy, and since when: for the status page and for announcements to the fleet."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kproxy.proxy.facts import UNPREPARED, BrokerDown, Trouble, retried, utc
from kproxy.proxy.stats import Stats

#: A batch that has had no outcome for so long is reported.
STALLED_SECONDS: Final = 60.0
#: Brokers that are named one by one, and errors of an outage; the others are counted.
_MOST_BROKERS: Final = 10
_MOST_ERRORS: Final = 3


class DownBroker(NamedTuple):
    """A broker that is down, and why."""

    node_id: int
    address: str
    down: BrokerDown


def troubles(stats: Stats, down: Sequence[DownBroker], refused: Mapping[str, int], now: float) -> list[Trouble]:
    """Everything that is wrong at ``now`` (seconds since the epoch); what hinders clients first.

    ``down``: the brokers that are down. ``refused``: connections that were refused in the last minute, by reason.
    """
    found = [*_serving(stats), *_brokers(stats, down), *_waiting(stats, now), *_refusing(stats, refused)]
    return sorted([*found, *_losses(stats)], key=lambda row: not row.severe)


def trouble_text(trouble: Trouble) -> str:
    """One line: the trouble, since when, and what kproxy or the operator does next."""
    since = "" if trouble.since_ms is None else f" since {utc(trouble.since_ms / 1000)}"
    return f"{trouble.what}{since}{': ' if trouble.detail else ''}{trouble.detail}"


def _serving(stats: Stats) -> Iterator[Trouble]:
    upstream = stats.upstream
    if upstream.stopping:
        yield Trouble("shutting down", None, "new connections go to other instances", severe=False)
        return
    if not upstream.listening:
        yield Trouble("not listening for clients", None, "", severe=True)
    outage = upstream.outage
    if outage is not None:
        said = "no broker answers" if upstream.brokers else "no broker has been reached yet"
        more = len(outage.errors) - _MOST_ERRORS
        errors = [*outage.errors[:_MOST_ERRORS], *([f"and {more} more"] if more > 0 else [])]
        detail = "; ".join([*errors, retried(outage.pause_ms)])
        yield Trouble(said, int(outage.since * 1000), detail, severe=True)
    elif not upstream.reached:
        yield Trouble("no broker has been reached yet", None, "", severe=True)
    elif not upstream.prepared:
        yield Trouble(UNPREPARED, None, "", severe=True)


def _brokers(stats: Stats, down: Sequence[DownBroker]) -> Iterator[Trouble]:
    if stats.upstream.outage is not None:
        return  # it names their errors
    for row in down[:_MOST_BROKERS]:
        detail = f"{row.down.reason}; {row.down.next}"
        yield Trouble(f"broker {row.node_id} ({row.address}) is down", row.down.since_ms, detail, severe=True)
    if len(down) > _MOST_BROKERS:
        yield Trouble(f"{len(down) - _MOST_BROKERS} more brokers are down", None, "see kproxy status", severe=True)


def _waiting(stats: Stats, now: float) -> Iterator[Trouble]:
    oldest = stats.produce.oldest_unacknowledged
    if oldest is not None and now - oldest > STALLED_SECONDS:
        detail = "kproxy keeps sending it; check the leader of its partition"
        yield Trouble("a batch has had no outcome", int(oldest * 1000), detail, severe=True)
    transactions = stats.transactions
    if transactions.unknown:
        since = transactions.oldest_unknown
        yield Trouble(
            f"read_committed consumers wait at {transactions.unknown} producer ids that the transaction log does not "
            "know",
            None if since is None else int(since * 1000),
            "see kproxy txn reject",
            severe=True,
        )


def _refusing(stats: Stats, refused: Mapping[str, int]) -> Iterator[Trouble]:
    clients = stats.clients
    if clients.connections_open >= clients.connections_limit > 0:
        yield Trouble(
            f"max.connections = {clients.connections_limit} is reached", None, "new clients are refused", severe=True
        )
    if refused:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(refused.items()))
        yield Trouble("connections of clients were refused in the last minute", None, reasons, severe=False)


def _losses(stats: Stats) -> Iterator[Trouble]:
    losses = sum(stats.transactions.log_losses.values())
    if losses:
        yield Trouble(
            f"{losses} losses of records of the transaction log",
            None,
            "since the start; see kproxy doctor",
            severe=False,
        )
