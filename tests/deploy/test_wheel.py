"""The package as users get it: built from the source distribution, and run in an environment that has nothing else."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from kproxy import __version__
from kproxy.distribution import NAME

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
#: As wheels write the name.
_FILES = NAME.replace("-", "_")
#: 2026-01-01, in seconds.
EPOCH = "1767225600"


def _build(folder: Path) -> Path:
    """The wheel, made of the sdist as ``python -m build`` does, with the tools of this environment."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    environment = os.environ | {"SOURCE_DATE_EPOCH": EPOCH}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        return Parser().parsestr(archive.read(f"{_FILES}-{__version__}.dist-info/METADATA").decode())


def test_it_holds_all_that_runs_and_no_test(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    sources = {str(path.relative_to(ROOT)) for path in _shipped(ROOT / "kproxy")}
    assert sources <= names
    assert "kproxy/py.typed" in names
    assert f"{_FILES}-{__version__}.data/data/share/man/man1/kproxy.1" in names
    assert not [name for name in names if name.startswith(("tests/", "tools/", "bench/"))]


def _shipped(folder: Path) -> Iterator[Path]:
    """All files of the package, also those that are no Python."""
    return (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def test_it_says_what_it_is(metadata: Message) -> None:
    assert (metadata["Name"], metadata["Version"]) == (NAME, __version__)
    # The registry's upload refuses newer ones, which the newest hatchling would write.
    assert metadata["Metadata-Version"] == "2.4"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().startswith("# kproxy")
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])


def test_the_same_source_gives_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    again = _build(tmp_path)
    assert hashlib.sha256(again.read_bytes()).hexdigest() == hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_it_runs_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    # Elsewhere, so that no source can be found beside the wheel.
    environment = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = [UV, "tool", "run", "--python", sys.executable, "--from", f"{NAME}[demo] @ {wheel.as_uri()}", "kproxy"]
    for arguments, expected in ((["--version"], f"kproxy {__version__}"), (["demo", "--help"], "--records")):
        done = subprocess.run(
            [*command, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
    demo = [*command, "demo", "--broker", "fake", "--records", "1000"]
    done = subprocess.run(demo, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
