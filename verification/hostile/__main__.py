"""``make hostile``: attacks on a live kproxy, and a table of what they cost it; exit code 1 if that is too much."""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from verification.hostile.flood import ANSWERED, CLOSED, SILENT, flood
from verification.hostile.measure import Limits, Row, measured
from verification.hostile.mutations import Kind, frames, requests
from verification.hostile.setups import SETUPS, Setup
from verification.hostile.target import Besieged

_FRAMES: Final = 50_000
_SHORT_FRAMES: Final = 1_200
#: Frames that are sent before anything is measured, where frames are sent: code is loaded, and caches are filled.
_WARM_UP: Final = 500
#: How often each attack is run before it is measured: memory that OpenSSL and the C library keep for a second attack
#: reaches its plateau with that.
_WARM_ATTACKS: Final = 2
#: How often an attack after which memory grew is repeated.
_REPEATS: Final = 2
#: After so many frames the fake broker is started again if it has ended: then nothing would reach deep handlers.
_ROUND: Final = 250
_MIB: Final = 1 << 20
_COLUMNS: Final = (
    "kproxy",
    "attack",
    "s",
    "MiB before",
    "MiB after",
    "rise",
    "files",
    "stretch, ms",
    "wait, ms",
    "answers",
    "faults",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all attacks; 0 if kproxy bore them."""
    options = _options().parse_args(arguments)
    count = options.frames or (_SHORT_FRAMES if options.short else _FRAMES)
    console = Console(width=None if sys.stdout.isatty() else 180)
    progress = Console(stderr=True, highlight=False)
    table, failed = Table(*_COLUMNS, title=f"seed {options.seed}, {count} frames of {len(requests())} requests"), 0
    setups = [kept for setup in SETUPS if (kept := _only(setup, options.only)) is not None]
    for setup in setups:
        limits = Limits(options.most_stretch / 1000, setup.most_rise, setup.most_wait)
        for row in _attacked(setup, options.seed, count // sum(each.floods for each in SETUPS)):
            faults = row.faults(limits)
            failed += bool(faults)
            progress.print(f"{setup.name}: {row.name}: {row.seconds:.1f} s, {row.answers}")
            table.add_row(setup.name, *_cells(row), "; ".join(faults) or "none")
    console.print(table)
    console.print(f"{failed} of {table.row_count} attacks did harm")
    return bool(failed)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make hostile ARGS=...", description=__doc__)
    parser.add_argument("--frames", type=int, help=f"mutated frames in all (default: {_FRAMES})")
    parser.add_argument("--short", action="store_true", help=f"for CI: {_SHORT_FRAMES} frames, about a minute")
    parser.add_argument("--seed", type=int, default=1, help="decides the frames (default: 1)")
    parser.add_argument(
        "--most-stretch",
        type=float,
        default=100,
        help="ms of processor time that the loop may work without a look at its connections (default: 100)",
    )
    parser.add_argument("--only", metavar="NAME", help="one setup, or one attack (a function), without the frames")
    return parser


def _only(setup: Setup, name: str | None) -> Setup | None:
    """What is run of a setup; None: nothing."""
    if name is None or name == setup.name:
        return setup
    attacks = [attack for attack in setup.attacks if attack.__name__ == name]
    return replace(setup, attacks=attacks, floods=False) if attacks else None


def _attacked(setup: Setup, seed: int, count: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name, setup.besiege(Path(name)) as proxy:
        if setup.floods and isinstance(proxy, Besieged):
            _flooded(proxy, seed + 1, _WARM_UP)
        for attack in [*setup.attacks] * _WARM_ATTACKS:
            attack(proxy)
        for attack in setup.attacks:
            yield _settled(partial(measured, proxy, (attack.__doc__ or "").rstrip("."), attack, pings=setup.pings))
        if setup.floods and isinstance(proxy, Besieged):
            flooded = partial(_flooded, seed=seed, count=count)
            yield _settled(partial(measured, proxy, f"{count} mutated frames", flooded))


def _settled(measure: Callable[[], Row]) -> Row:
    """Return the row of an attack. If memory grew, the attack is repeated: a leak grows each time, a heap does not."""
    row = measure()
    for _ in range(_REPEATS):
        if not row.has_grown:
            break
        row = measure()
    return row


def _flooded(proxy: Besieged, seed: int, count: int) -> str:
    found: Counter[str] = Counter()
    sent = frames(seed, count)
    while batch := list(islice(sent, _ROUND)):
        found += flood(proxy.port, iter(batch))
        proxy.make_topic()
    sound = 100 * found[Kind.ONE_FIELD] // count
    outcomes = ", ".join(f"{found[outcome]} {outcome}" for outcome in (ANSWERED, CLOSED, SILENT))
    return f"{outcomes}; {sound} % well-formed but for one field"


def _cells(row: Row) -> tuple[str, ...]:
    wait = "-" if row.wait is None else f"{row.wait * 1000:.0f}"
    stretch = f"{row.stretch * 1000:.0f}"
    before, after = row.memory
    files = f"{row.files[0]} / {row.files[1]}"
    return (
        row.name,
        f"{row.seconds:.1f}",
        f"{before / _MIB:.0f}",
        f"{after / _MIB:.0f}",
        f"{row.rise / _MIB:.0f}",
        files,
        stretch,
        wait,
        row.answers,
    )


if __name__ == "__main__":
    sys.exit(main())
