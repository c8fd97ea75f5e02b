"""``make idempotence``: idempotent producers directly and through kproxy, and what is in the log."""

import sys
from collections.abc import Sequence
from typing import Any, Final

import click
from rich.table import Table

from verification.history.report import make_console
from verification.idempotence.clients import idempotent_clients
from verification.idempotence.trial import KINDS, directly, run, through

_COUNT: Final = 3_000
_EXAMPLES: Final = """
\b
Examples:
  make idempotence
  make idempotence ARGS="--only java-4.4.0 --kind broker"
"""


@click.command(epilog=_EXAMPLES)
@click.option("--only", type=click.Choice(list(idempotent_clients())), multiple=True, help="Only this client.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only this kind of trial.")
@click.option("--way", type=click.Choice(["direct", "kproxy"]), multiple=True, help="Only this way.")
@click.option("--records", type=click.IntRange(1), default=_COUNT, show_default=True, help="Records of each trial.")
def main(only: Sequence[str], kinds: Sequence[str], way: Sequence[str], records: int) -> None:
    """Run released idempotent producers while a seventh of the responses is lost.

    lost: nothing else happens. broker: the only broker is killed with -9 and started again. epochs: another program
    raises the epochs of all producer ids. Exit status: 1 if through kproxy a client gave up, or a record is missing,
    there twice or late.
    """
    console, bad = make_console(), 0
    table = Table("client", "kind", "way", "copies", "missing", "late", "gave up", "repairs", "s")
    for name in way or ("direct", "kproxy"):
        with directly() if name == "direct" else through() as place:
            for client in idempotent_clients().values():
                for kind in KINDS:
                    if (only and client.name not in only) or (kinds and kind not in kinds):
                        continue
                    found = run(client, kind, place, records)
                    row: list[Any] = [client.name, kind, name, *found[:4], found.repairs, round(found.seconds)]
                    console.print(*row)
                    table.add_row(*map(str, row))
                    bad += name == "kproxy" and any(found[:4])
    console.print(table)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
