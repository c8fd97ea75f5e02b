"""The version of a release: it is in the package, in the chart and in the tag, and must be the same everywhere.

python -m tools.release_version --check 0.2.0    # fails unless package, chart and CHANGELOG.md have this version
python -m tools.release_version --set 0.2.0      # writes it into every file that names it
python -m tools.release_version --notes 0.2.0    # prints this version's part of CHANGELOG.md
"""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
#: Each file that names the version, with the text before it.
PLACES: Final[Mapping[str, Sequence[str]]] = {
    "kproxy/__init__.py": ('__version__ = "',),
    "pyproject.toml": ('\nversion = "',),
    "deploy/helm/kproxy/Chart.yaml": ("\nversion: ", "\nappVersion: "),
    "deploy/compose.yaml": ("image: kproxy:",),
    "deploy/kubernetes/sidecar.yaml": ("image: kproxy:",),
    "deploy/Dockerfile": ("ARG VERSION=", "kproxy:"),
    "docs/deploy.md": ("kproxy-", "kproxy:", "version: "),
}
_VERSION: Final = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?"


def versions(root: Path) -> dict[str, set[str]]:
    """Return the versions that each file names."""
    return {name: _found(root / name, before) for name, before in PLACES.items()}


def _found(path: Path, before: Sequence[str]) -> set[str]:
    text = path.read_text(encoding="utf-8")
    return {version for start in before for version in re.findall(re.escape(start) + f"({_VERSION})", text)}


def set_version(root: Path, version: str) -> None:
    """Write the version into each file that names it.

    :raises ValueError: it is not a version such as 0.2.0 or 0.2.0rc1.
    """
    if not re.fullmatch(_VERSION, version):
        raise ValueError(f"{version!r} is no version; valid: 0.2.0, 0.2.0rc1")
    for name, before in PLACES.items():
        path = root / name
        text = path.read_text(encoding="utf-8")
        for start in before:
            text = re.sub(re.escape(start) + _VERSION, lambda _, start=start: start + version, text)
        path.write_text(text, encoding="utf-8")


def notes(root: Path, version: str) -> str:
    """Return the part of CHANGELOG.md about a version, without its title.

    :raises ValueError: CHANGELOG.md has no such part, or the part is empty.
    """
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    parts = re.split(r"^## ", text, flags=re.MULTILINE)
    for part in parts:
        title, _, body = part.partition("\n")
        if title.split()[:1] == [version] and body.strip():
            return body.strip() + "\n"
    raise ValueError(f"CHANGELOG.md says nothing about {version}")


def problems(root: Path, version: str) -> list[str]:
    """Return one line for each file that names another version than this one, or none."""
    found = [
        f"{name}: {', '.join(sorted(named)) or 'no version'} in place of {version}"
        for name, named in versions(root).items()
        if named != {version}
    ]
    try:
        notes(root, version)
    except ValueError as error:
        found.append(str(error))
    return found


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Check, set or describe a version; 1 if it cannot."""
    parser = argparse.ArgumentParser(prog="python -m tools.release_version")
    action = parser.add_mutually_exclusive_group(required=True)
    for name in ("check", "set", "notes"):
        action.add_argument(f"--{name}", metavar="VERSION")
    given = parser.parse_args(arguments)
    try:
        if given.set:
            set_version(root, given.set)
        elif given.notes:
            print(notes(root, given.notes), end="")
        elif wrong := problems(root, given.check):
            print("\n".join(wrong), file=sys.stderr)
            return 1
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
