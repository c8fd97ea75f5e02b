"""``python -m verification.fuzz``: coverage-guided fuzzing; exit code 1 if something was found."""

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from kproxy.distribution import install_command
from verification.fuzz.corpus import KEPT, Corpus, kept, name_of, spread, write
from verification.fuzz.coverage import covered, smallest
from verification.fuzz.measure import bounded
from verification.fuzz.target import LONGEST, Target
from verification.fuzz.targets import TARGETS

_SECONDS: Final = 3600
_FOLDER: Final = Path("build") / "fuzz"
#: An input that takes longer is a finding, too: regular expressions and libraries in C count no instructions.
_LONGEST_SECONDS: Final = 20
_MOST_MIB: Final = 2048
_UNITS: Final = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_EDGES: Final = re.compile(r"cov: (\d+) ft: (\d+)")


class Run(NamedTuple):
    """What one target's run came to."""

    executions: int
    #: Edges of instrumented code that were reached.
    edges: int
    #: Files with inputs that are findings.
    found: Sequence[Path]


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzzes the targets one after the other; 1 if something was found."""
    parser = _options()
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.targets if name not in TARGETS]:
        parser.error(f"no target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    chosen = [TARGETS[name] for name in options.targets or TARGETS]
    if options.input is not None:
        return _replayed(chosen, options.input)
    if options.seconds and find_spec("atheris") is None:
        parser.error(f"fuzzing needs atheris: {install_command('fuzz')} (--seconds 0 does without)")
    found = 0
    for target in chosen:
        folder = options.folder / target.name
        if options.seconds:
            found += _fuzzed(target, folder, options.seconds // len(chosen))
        if options.keep:
            _keep(target, folder)
    return bool(found)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m verification.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"default: all of them ({', '.join(TARGETS)})")
    parser.add_argument(
        "--seconds", type=int, default=_SECONDS, help=f"for all targets together (default: {_SECONDS}; 0: none)"
    )
    parser.add_argument(
        "--folder", type=Path, default=_FOLDER, help=f"for inputs; a later run continues there (default: {_FOLDER})"
    )
    parser.add_argument("--keep", action="store_true", help=f"afterwards keep the inputs that cover most in {KEPT}")
    parser.add_argument("--input", type=Path, help="check this one input instead, and show what it costs")
    return parser


def _replayed(targets: Sequence[Target], path: Path) -> int:
    for target in targets:
        print(f"{target.name}: {bounded(target, path.read_bytes())}")  # noqa: T201
    return 0


def _fuzzed(target: Target, folder: Path, seconds: int) -> int:
    """Fuzzes a target; returns how many findings there are."""
    spread(folder / "inputs", [*target.seeds(), *(data for part in kept(target.name) for data in part)])
    run = _run(target, folder, seconds)
    inputs = [path.read_bytes() for path in sorted((folder / "inputs").iterdir())]
    dear = _dear(target, folder / "found", inputs)
    coverage = covered(target, inputs)
    lines = f"{run.executions} executions, {run.edges} edges, {len(inputs)} inputs"
    print(f"{target.name}: {lines}, {coverage.reached} of {coverage.lines} lines")  # noqa: T201
    for finding in (*map(str, run.found), *dear):
        print(f"{target.name}: FOUND {finding}")  # noqa: T201
    sys.stdout.flush()
    return len(run.found) + len(dear)


def _run(target: Target, folder: Path, seconds: int) -> Run:
    found = folder / "found"
    found.mkdir(parents=True, exist_ok=True)
    before = set(found.iterdir())
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST}",
        f"-timeout={_LONGEST_SECONDS}",
        "-len_control=10",
        f"-rss_limit_mb={_MOST_MIB}",
        f"-artifact_prefix={found}/",
        "-print_final_stats=1",
        "-reload=0",
        str(folder / "inputs"),
    ]
    if target.words:
        words = folder / "words"
        words.write_text("".join(_quoted(word) for word in target.words))
        options.append(f"-dict={words}")
    command = [sys.executable, "-m", "verification.fuzz.loop", target.name, *options]
    with (folder / "log").open("w") as log:
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    said = (folder / "log").read_text(errors="replace")
    units, edges = _UNITS.findall(said), _EDGES.findall(said)
    new = sorted(set(found.iterdir()) - before)
    if not units:
        raise RuntimeError(f"nothing was executed: see {folder / 'log'}")
    return Run(int(units[-1]), int(edges[-1][0]) if edges else 0, new)


def _quoted(word: bytes) -> str:
    """A word as libFuzzer's dictionaries have it."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n'


def _dear(target: Target, folder: Path, inputs: Sequence[bytes]) -> list[str]:
    """The inputs that cost more than the target's bound, or that fail; they are put into a folder."""
    dear = []
    for data in inputs:
        try:
            bounded(target, data)
        except Exception as error:
            path = folder / f"dear-{name_of(data)}"
            path.write_bytes(data)
            dear.append(f"{path}: {type(error).__name__}: {error}")
    return dear


def _keep(target: Target, folder: Path) -> None:
    """Replaces what is kept by the smallest inputs that reach as much, and what was found."""
    before = kept(target.name)
    inputs = [*before.inputs, *map(Path.read_bytes, (folder / "inputs").iterdir())]
    found = [*before.found, *map(Path.read_bytes, (folder / "found").iterdir())]
    write(KEPT / f"{target.name}.zip", Corpus(smallest(target, inputs), found))


if __name__ == "__main__":
    sys.exit(main())
