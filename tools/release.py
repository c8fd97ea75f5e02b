"""``make release-rehearsal``: every step of a release but its uploads; release.yml publishes the files of these steps.

python -m tools.release                       # all steps, files in dist/
python -m tools.release package quick-start   # these steps
python -m tools.release --version 0.2.0       # refuses another version than that of the tag
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tools.release_quick_start import StepFailed
from tools.release_steps import STEPS, Release

ROOT: Final = Path(__file__).resolve().parent.parent
#: Lines of a failed command's output that are shown.
_SHOWN_LINES: Final = 20


class Outcome(NamedTuple):
    """How a step ended, after how many seconds, and what it showed or why it failed."""

    step: str
    seconds: float
    ok: bool
    text: str


def rehearse(release: Release, names: Sequence[str], say: Callable[[str], None]) -> list[Outcome]:
    """Run the steps in their order until one fails."""
    outcomes: list[Outcome] = []
    for number, name in enumerate(names, 1):
        began = time.monotonic()
        say(f"[{number}/{len(names)}] {name} ...")
        try:
            ok, text = True, STEPS[name](release)
        except StepFailed as error:
            ok, text = False, str(error)
        except subprocess.CalledProcessError as error:
            ok, text = False, _failed_command(error)
        outcomes.append(Outcome(name, round(time.monotonic() - began, 1), ok, text))
        say(f"[{number}/{len(names)}] {name}: {'done' if ok else 'failed'} after {outcomes[-1].seconds:.1f} s; {text}")
        if not ok:
            break
    return outcomes


def _failed_command(error: subprocess.CalledProcessError) -> str:
    output = "\n".join(f"{error.stdout or ''}{error.stderr or ''}".splitlines()[-_SHOWN_LINES:])
    return f"{' '.join(map(str, error.cmd))} ended with {error.returncode}\n{output}".rstrip()


def report(release: Release, outcomes: Sequence[Outcome]) -> dict[str, object]:
    """The outcome of each step, and the files with size and checksum."""
    files = [
        {"name": path.name, "bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in sorted(release.dist.iterdir())
    ]
    return {
        "version": release.version,
        "ok": all(row.ok for row in outcomes),
        "seconds": round(sum(row.seconds for row in outcomes), 1),
        "steps": [row._asdict() for row in outcomes],
        "files": files,
    }


def table(outcomes: Sequence[Outcome], names: Sequence[str]) -> str:
    """Steps and seconds, one a line; those after a failed step are named, too."""
    rows = [(row.step, f"{row.seconds:.1f}", "done" if row.ok else "failed") for row in outcomes]
    rows += [(name, "", "not begun") for name in names[len(outcomes) :]]
    rows.append(("all", f"{sum(row.seconds for row in outcomes):.1f}", ""))
    lines = [("step", "seconds", ""), *rows]
    return "\n".join(f"{name:14}{seconds:>8}  {end}".rstrip() for name, seconds, end in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Rehearse, and print what each step took; 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__.partition("\n")[0])
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(STEPS)}; all unless given")
    parser.add_argument("--version", help="the version that the tag names; the package's unless given")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="the folder of the files, emptied before")
    parser.add_argument("--broker", choices=["auto", "kafka", "fake"], default="auto", help="for the quick start")
    parser.add_argument("--json", action="store_true", help="print the report as JSON on stdout")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.steps if name not in STEPS]:
        parser.error(f"{', '.join(unknown)}: no such step; valid: {', '.join(STEPS)}")
    names = [name for name in STEPS if name in given.steps] or list(STEPS)
    shutil.rmtree(given.dist, ignore_errors=True)
    given.dist.mkdir(parents=True)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    # Elsewhere than the repository, which none of the installed programs shall see.
    with tempfile.TemporaryDirectory(prefix="kproxy-release-") as work:
        release = Release(ROOT, given.dist.resolve(), Path(work), given.version, given.broker, say)
        outcomes = rehearse(release, names, say)
        found = report(release, outcomes)
    print(json.dumps(found, indent=2) if given.json else table(outcomes, names))
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
