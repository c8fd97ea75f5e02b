import json
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.cli import main
from kproxy.config import ExitCode

FILE = """\
sources: {a: {parquet: /in}}
steps: [{name: b, sql: SELECT * FROM a}]
sinks: [{parquet: /out, from: b}]
checkpoint: /c
trigger: availableNow
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "p.yaml"
    made.write_text(FILE)
    return made


def test_a_file_in_order(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "check", str(file), "--offline"]) == ExitCode.OK
    assert "pipeline 'p' is in order\n  sources: a\n  steps: b\n  topics: -\n" in capsys.readouterr().out
    assert main(["pipeline", "check", str(file), "--offline", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["directories"] == ["/out"]


@pytest.mark.parametrize("command", ["check --offline", "run"])
def test_a_file_that_is_wrong(file: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    file.write_text(FILE.replace("checkpoint", "chekpoint"))
    assert main(["pipeline", *command.split(), str(file)]) == ExitCode.USAGE
    assert capsys.readouterr().err.splitlines() == [
        f"kproxy: {file}:1: checkpoint: is missing",
        f"kproxy: {file}:4: chekpoint: unknown key; did you mean 'checkpoint'?",
    ]


def test_faults_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(FILE.replace("from: b", "from: c"))
    assert main(["pipeline", "check", str(file), "--offline", "--json"]) == ExitCode.USAGE
    found = json.loads(capsys.readouterr().out)
    assert found["problems"] == [{"line": 3, "key": "sinks[0]", "text": "from: 'c' is no source and no step"}]
    assert main(["pipeline", "check", f"{file}.none", "--json"]) == ExitCode.USAGE
    assert json.loads(capsys.readouterr().out)["problems"][0]["line"] is None


def test_submit_prints_a_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "run", str(file), "--submit"]) == ExitCode.OK
    [line] = capsys.readouterr().out.splitlines()
    assert line.endswith(f"__main__.py {file}")
    assert main(["pipeline", "run", str(file), "--submit", "--json"]) == ExitCode.USAGE
    assert "does not go with --json" in capsys.readouterr().err


def test_help_has_examples_and_needs_no_spark() -> None:
    script = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from kproxy.cli import main\n"
        "assert main(['pipeline', '--help']) == 0\n"
        "assert main(['pipeline', 'run', '--help']) == 0\n"
        "sys.exit(main(['pipeline', 'check', 'p.yaml']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "kproxy pipeline run orders.yaml --submit" in done.stdout
    assert (done.returncode, done.stderr) == (
        1,
        "kproxy: pipelines need Spark: pip install '.[spark]', in a clone of kproxy\n",
    )


def test_spark_is_not_imported_for_the_help_of_kproxy() -> None:
    script = "import sys; from kproxy.cli import main; main(['--help']); sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False).returncode == 0
