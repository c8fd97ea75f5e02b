"""The workflows of the repository's host are well-formed: actionlint checks syntax, expressions and shell lines."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.7"
#: The first time it is downloaded and compiled.
PATIENCE_S = 600


def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    files = sorted(ROOT.glob(".github/workflows/*.yml"))
    assert len(files) >= 3
    ended = subprocess.run(
        ["go", "run", ACTIONLINT, "-no-color", *map(str, files)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.stdout == ""
    assert ended.returncode == 0, ended.stderr
