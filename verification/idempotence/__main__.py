"""``make idempotence``: idempotent producers directly and through kproxy, and what is in the log."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import product
from typing import Any, Final

import click
from rich.table import Table

from verification.history.report import make_console
from verification.idempotence.acts import KINDS, Place, Site, names
from verification.idempotence.clients import client_of, idempotent_clients
from verification.idempotence.trial import directly, is_bad, run, through

_COUNT: Final = 3_000
WAYS: Final[Mapping[str, Callable[[Site], AbstractContextManager[Place]]]] = {"direct": directly, "kproxy": through}
_COLUMNS: Final = (
    "client",
    "kind",
    "way",
    "copies",
    "missing",
    "late",
    "failed",
    "gave up",
    "told lost",
    "repairs",
    "s",
)
_EXAMPLES: Final = (
    """
\b
Kinds:
"""
    + "".join(f"  {name}: {kind.about}.\n" for name, kind in KINDS.items())
    + """
\b
Examples:
  make idempotence
  make idempotence ARGS="--only java-4.4.0 --kind broker"
"""
)


@click.command(epilog=_EXAMPLES)
@click.option("--only", type=click.Choice(list(idempotent_clients())), multiple=True, help="Only this client.")
@click.option("--kind", "kinds", type=click.Choice(list(KINDS)), multiple=True, help="Only this kind of trial.")
@click.option("--way", type=click.Choice(list(WAYS)), multiple=True, help="Only this way.")
@click.option("--records", type=click.IntRange(1), default=_COUNT, show_default=True, help="Records of each trial.")
def main(only: Sequence[str], kinds: Sequence[str], way: Sequence[str], records: int) -> None:
    """Run released producers directly and through kproxy, while a seventh of the responses is lost.

    All are idempotent, but for one.

    Exit status: 1 if through kproxy a client gave up, or a record is missing, there twice or late, though no
    acknowledged record was lost by the brokers. A record that a client reports as failed may be missing.
    """
    console, bad = make_console(), 0
    table = Table(*_COLUMNS)
    for name, site in product(way or WAYS, Site):
        wanted = names(name, site, kinds)
        if not wanted:
            continue
        with WAYS[name](site) as place:
            for each, kind in product(only or idempotent_clients(), wanted):
                client = client_of(each, hasty=KINDS[kind].is_hasty)
                if client is None:
                    continue
                found = run(client, kind, place, records)
                row: list[Any] = [each, kind, name, *found[:5], found.told, found.repairs, round(found.seconds)]
                console.print(*row, found.reasons)
                table.add_row(*map(str, row))
                bad += name == "kproxy" and is_bad(found, KINDS[kind], client)
    console.print(table)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
