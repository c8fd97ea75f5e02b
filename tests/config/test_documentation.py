import subprocess
import sys
from pathlib import Path

from kproxy.config import Config, options

ROOT = Path(__file__).parent.parent.parent


def test_page_agrees_with_the_option_table() -> None:
    command = [sys.executable, "-m", "tools.generate_docs", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_every_option_is_on_the_page() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    for name, entry in options(Config).items():
        assert f"### `{name}`\n" in page
        assert entry.reason in page
