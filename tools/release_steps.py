"""The steps of a release: files made of the repository, each proven as its users get it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import helm_python
import yaml

from kproxy import __version__
from kproxy.distribution import PUBLISHED
from tools import release_version
from tools.image import Unproven, commit_epoch, proven_image
from tools.release_quick_start import StepFailed, quick_start

_TWINE: Final = "twine>=6,<7"
_CHART: Final = "deploy/helm/kproxy"
_BROKERS: Final = {"bootstrapServers": ["kafka-1:9092"]}
#: Variables that would show an installed program the repository, or another environment.
_HIDDEN: Final = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
_PLACES: Final = "import json, sys, kproxy; print(json.dumps([kproxy.__file__, *sys.path]))"


@dataclass(frozen=True)
class Release:
    """A repository, the folder for its release's files, and a folder elsewhere to try them in."""

    root: Path
    dist: Path
    work: Path
    tag: str | None
    broker: str
    say: Callable[[str], None]

    @property
    def version(self) -> str:
        """The tag's version, or that of the package."""
        return self.tag or __version__

    @property
    def wheel(self) -> Path:
        """The built wheel; StepFailed if there is none."""
        found = list(self.dist.glob("*.whl"))
        if len(found) != 1:
            raise StepFailed(f"{self.dist} has {len(found)} wheels: run the step package, too")
        return found[0]

    @cached_property
    def python(self) -> Path:
        """Python of a new environment that has the wheel and no more."""
        folder = self.work / "environment"
        self.say("    a new environment ...")
        self.run([sys.executable, "-m", "venv", folder])
        python = folder / "bin" / "python"
        self.install(python, str(self.wheel))
        return python

    def install(self, python: Path, what: str) -> None:
        """Install a wheel, perhaps with an extra, as a user does: dependencies come from the registry."""
        self.say(f"    pip install {Path(what).name} ...")
        self.run([python, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", what])

    @property
    def environment(self) -> Mapping[str, str]:
        """This process' environment without what shows the repository, and without options of kproxy."""
        shown = {name: text for name, text in os.environ.items() if name not in _HIDDEN}
        return {name: text for name, text in shown.items() if not name.startswith("KPROXY_")}

    def run(self, command: list[Any], **more: str) -> str:
        """The output of a command, run away from the repository; CalledProcessError with its output if it fails."""
        environment = {**self.environment, **more}
        done = subprocess.run(
            [str(part) for part in command], cwd=self.work, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()


def versions(release: Release) -> str:
    """Check that package, chart and tag have one version, and that CHANGELOG.md has a part about it."""
    wrong = release_version.problems(release.root, release.version)
    if release.tag and not PUBLISHED:
        wrong.append("kproxy/distribution.py: PUBLISHED is False, and a release is published: set it to True")
    if wrong:
        raise StepFailed("; ".join(wrong))
    return f"{len(release_version.PLACES)} files name {release.version}"


def package(release: Release) -> str:
    """Build the source distribution, and the wheel from it; the registry's own check of what it will show."""
    epoch = str(commit_epoch(release.root))
    release.say("    python -m build ...")
    release.run([sys.executable, "-m", "build", "--outdir", release.dist, release.root], SOURCE_DATE_EPOCH=epoch)
    files = sorted([*release.dist.glob("*.tar.gz"), release.wheel])
    release.say("    twine check ...")
    release.run([sys.executable, "-m", "uv", "tool", "run", "--from", _TWINE, "twine", "check", "--strict", *files])
    return ", ".join(path.name for path in files)


def install(release: Release) -> str:
    """Install the wheel in a new environment, and check that it runs from there."""
    found, *path = json.loads(release.run([release.python, "-I", "-c", _PLACES]))
    environment = release.python.parent.parent
    if not Path(found).is_relative_to(environment):
        raise StepFailed(f"kproxy was imported from {found}, not from {environment}")
    if seen := [place for place in path if Path(place).resolve().is_relative_to(release.root)]:
        raise StepFailed(f"the repository is visible: {', '.join(seen)}")
    said = release.run([release.python.parent / "kproxy", "--version"])
    if said != f"kproxy {release.version}":
        raise StepFailed(f"kproxy --version says {said!r}, not {release.version}")
    count = len(json.loads(release.run([release.python, "-I", "-m", "pip", "list", "--format=json"])))
    return f"{said}, {count} packages in a new environment"


def try_quick_start(release: Release) -> str:
    """Run README's quick start from the wheel, with a client and brokers of it."""
    python = release.python
    release.install(python, f"{release.wheel}[demo]")
    readme = (release.root / "README.md").read_text(encoding="utf-8")
    return quick_start(readme, python.parent, release.work, release.environment, release.broker, release.say)


def image(release: Release) -> str:
    """Build the image, prove it, and keep its bill of materials."""
    if os.geteuid() != 0 or shutil.which("buildah") is None or shutil.which("mmdebstrap") is None:
        raise StepFailed("needs root, buildah and mmdebstrap (on Debian: make system); name the other steps to skip it")
    bill = release.dist / f"kproxy-{release.version}.cdx.json"
    release.say("    buildah build ...")
    try:
        proven_image(lambda line: release.say(f"    {line}"), bill)
    except Unproven as error:
        raise StepFailed(str(error)) from None
    parts = json.loads(bill.read_text(encoding="utf-8"))
    return f"bill of materials: {parts['bomFormat']} {parts['specVersion']}, {len(parts['components'])} components"


def chart(release: Release) -> str:
    """Package the chart with Helm's own code; the archive is linted and rendered."""
    archive = Path(helm_python.package(release.root / _CHART, destination=release.dist))
    found = helm_python.lint(archive, _BROKERS, strict=True)
    if faults := [row["message"] for row in found["messages"] if row["severity"] > 1] + found["errors"]:
        raise StepFailed(f"helm lint {archive.name}: {'; '.join(map(str, faults))}")
    with helm_python.Chart.load(archive) as loaded:
        if loaded.version != release.version:
            raise StepFailed(f"{archive.name} has version {loaded.version}, not {release.version}")
        texts = loaded.render(_BROKERS, name="kproxy", namespace="kafka")
    rendered = [text for name, text in texts.items() if name.endswith(".yaml")]
    kinds = [found["kind"] for text in rendered for found in yaml.safe_load_all(text) if found]
    return f"{archive.name}, renders {len(kinds)} manifests with its defaults"


def notes(release: Release) -> str:
    """Write this version's part of CHANGELOG.md; also draw up that of the fragments that wait for the next one."""
    text = release_version.notes(release.root, release.version)
    (release.dist / "notes.md").write_text(text, encoding="utf-8")
    fragments = [path for path in (release.root / "changes").glob("*.md") if path.name != "README.md"]
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", release.version]
    drawn = release.run([*command, "--dir", release.root])
    drawn = " ".join(drawn.split())
    if lost := [path.name for path in fragments if _first_words(path) not in drawn]:
        raise StepFailed(f"towncrier leaves out {', '.join(lost)}")
    return f"{len(text.splitlines())} lines of notes; {len(fragments)} fragments wait for the next version"


def _first_words(path: Path) -> str:
    return " ".join(path.read_text(encoding="utf-8").split()[:4])


#: In their order. The uploads of release.yml take what these leave in dist/.
STEPS: Final[Mapping[str, Callable[[Release], str]]] = {
    "versions": versions,
    "package": package,
    "install": install,
    "quick-start": try_quick_start,
    "chart": chart,
    "image": image,
    "notes": notes,
}
