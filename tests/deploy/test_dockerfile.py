"""The Dockerfile, as far as it can be told without building it (make image does that)."""

import re
import subprocess
import sys
from pathlib import Path

from kproxy import __version__

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
HADOLINT = Path(sys.executable).parent / "hadolint"


def _hadolint(path: Path) -> subprocess.CompletedProcess[str]:
    command = [HADOLINT, "--config", ROOT / "deploy" / "hadolint.yaml", path]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_hadolint_finds_no_fault() -> None:
    done = _hadolint(DOCKERFILE)
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_would_find_one(tmp_path: Path) -> None:
    broken = tmp_path / "Dockerfile"
    broken.write_text(DOCKERFILE.read_text(encoding="utf-8").replace("ENTRYPOINT [", "ENTRYPOINT kproxy #"))
    assert "DL3025" in _hadolint(broken).stdout


def test_every_copied_file_is_there_and_sent_to_the_engine() -> None:
    allowed = [
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    ]
    copies = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    names = [name for line in copies for name in line.split()]
    assert names
    for name in names:
        assert (ROOT / name).exists(), name
        assert any(Path(name).match(pattern) for pattern in allowed), name


def test_it_says_the_version_that_is_built() -> None:
    assert f"ARG VERSION={__version__}\n" in DOCKERFILE.read_text(encoding="utf-8")
