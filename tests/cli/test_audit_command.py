import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pytest
from pyspark.errors import AnalysisException, PySparkException

from kproxy.cli import main
from kproxy.config import ExitCode
from kproxy.spark.audit.duckdb_engine import DuckDbEngine
from kproxy.spark.audit.request import AUTO, DUCKDB, SPARK, Request
from kproxy.spark.audit.summary import Summary
from kproxy.spark.spark_errors import KafkaError
from tests.spark.audit.summaries import summary

NEEDED = ["audit", "--bootstrap-servers", "kproxy:9092", "--topics", "orders", "--out", "audits"]
Outcome = Summary | Exception


class Engine:
    """Stands for the one on Spark; knows the settings of its session."""

    settings: ClassVar[dict[str, str]] = {}

    def __init__(self, settings: dict[str, str]) -> None:
        Engine.settings = settings

    def close(self) -> None:
        pass


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[Request]]:
    """Replaces engines: returns the given outcome of an audit, and records the request for it."""
    requests: list[Request] = []
    monkeypatch.chdir(tmp_path)

    @contextmanager
    def session(_: str, conf: dict[str, str]) -> Iterator[dict[str, str]]:
        yield conf

    def stage(outcome: Outcome, engine: str = DUCKDB) -> list[Request]:
        def audit(found: object, request: Request, tell: Callable[[str], None]) -> tuple[Summary, Path]:
            assert isinstance(found, DuckDbEngine) is (engine == DUCKDB)
            requests.append(request)
            tell("reading")
            if isinstance(outcome, Exception):
                raise outcome
            return outcome, Path("audits/run=1")

        monkeypatch.setattr("kproxy.spark.spark_session.spark_session", session)
        monkeypatch.setattr("kproxy.spark.audit.spark_engine.SparkEngine", Engine)
        monkeypatch.setattr("kproxy.spark.audit.audit_job.audit", audit)
        monkeypatch.setattr("kproxy.spark.audit.audit_size.choose_engine", lambda request: engine)
        return requests

    return stage


def test_the_options_are_what_is_asked_for(asked: Callable[..., list[Request]]) -> None:
    requests = asked(summary())
    more = ["--since", '{"orders": {"0": 5}}', "--window", "1h", "--open-limit", "30s", "--key", "string(key)"]
    assert main([*NEEDED, *more, "--conf", "spark.executor.memory=2g", "--fresh"]) == ExitCode.OK
    (request,) = requests
    assert (request.bootstrap, request.topics, request.out) == ("kproxy:9092", "orders", Path("audits"))
    assert request.since.offsets == {"orders": {0: 5}}
    assert (request.window_ms, request.open_ms, request.prepared_ms) == (3_600_000, 30_000, 3_600_000)
    assert (request.key, request.fresh, request.brokers) == ("string(key)", True, None)
    assert request.conf == (("spark.executor.memory", "2g"),)
    assert request.engine == AUTO


def test_spark_gets_the_settings_that_are_given(asked: Callable[..., list[Request]]) -> None:
    asked(summary(), SPARK)
    arguments = ["--engine", "spark", "--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=7"]
    assert main([*NEEDED, *arguments]) == ExitCode.OK
    assert Engine.settings == {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "7"}


@pytest.mark.parametrize(
    ("outcome", "arguments", "code"),
    [
        (summary(), [], ExitCode.OK),
        (summary(warnings=1), [], ExitCode.OK),
        (summary(warnings=1), ["--fail-on", "warning"], ExitCode.PROMISE_BROKEN),
        (summary(broken=1), [], ExitCode.PROMISE_BROKEN),
    ],
)
def test_the_exit_code_says_whether_promises_held(
    asked: Callable[..., list[Request]],
    capsys: pytest.CaptureFixture[str],
    outcome: Summary,
    arguments: list[str],
    code: ExitCode,
) -> None:
    asked(outcome)
    assert main([*NEEDED, *arguments]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == outcome.sentence
    assert lines[-1] == "1,234 records in 8 partitions: audits/run=1/report.html"


def test_json_is_all_that_is_printed(asked: Callable[..., list[Request]], capsys: pytest.CaptureFixture[str]) -> None:
    asked(summary(broken=2))
    assert main([*NEEDED, "--json"]) == ExitCode.PROMISE_BROKEN
    assert json.loads(capsys.readouterr().out)["verdict"] == "broken"


@pytest.mark.parametrize(
    ("error", "engine", "line"),
    [
        (KafkaError("cannot connect to kproxy:9092: refused"), DUCKDB, "cannot connect to kproxy:9092: refused"),
        (duckdb.OutOfMemoryException("no room\n at x"), DUCKDB, "DuckDB: no room; --engine spark may have more room"),
        (
            PySparkException(
                "Job aborted\n  Traceback\nkproxy.spark.errors.KafkaError: no answer from kproxy:9092\n  at x"
            ),
            SPARK,
            "Spark: no answer from kproxy:9092",
        ),
        (PySparkException("[OUT_OF_MEMORY] too much\n  at x"), SPARK, "Spark: [OUT_OF_MEMORY] too much"),
        (PermissionError(13, "Permission denied"), DUCKDB, "cannot write to audits: Permission denied"),
    ],
)
def test_what_fails_is_reported_in_one_line(
    asked: Callable[..., list[Request]],
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    engine: str,
    line: str,
) -> None:
    asked(error, engine)
    assert main(NEEDED) == ExitCode.FAILURE
    assert capsys.readouterr().err.splitlines() == [f"kproxy: {line}"]


def test_a_key_that_spark_does_not_understand(
    asked: Callable[..., list[Request]], capsys: pytest.CaptureFixture[str]
) -> None:
    asked(AnalysisException("[UNRESOLVED_COLUMN] there is no ky\n  at x"), SPARK)
    assert main([*NEEDED, "--key", "ky"]) == ExitCode.USAGE
    assert capsys.readouterr().err == "kproxy: --key 'ky': [UNRESOLVED_COLUMN] there is no ky\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--window", "soon"], "--window 'soon' is no duration; valid: 500ms"),
        (["--since", "soon"], "--since 'soon' is no beginning; valid: 2h"),
        (["--conf", "memory=2g"], "--conf 'memory=2g' is no setting of Spark"),
        (["--run-length", "1"], "--run-length"),
        (["--colour"], "No such option"),
    ],
)
def test_a_wrong_option_is_named(capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    assert main([*NEEDED, *arguments]) == ExitCode.USAGE
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("absent", "arguments", "line"),
    [
        ("duckdb", [], "kproxy audit needs duckdb: pip install '.[audit]', in a clone of kproxy"),
        (
            "pyspark",
            ["--engine", "spark"],
            "an audit on Spark needs pyspark: pip install '.[spark]', in a clone of kproxy; "
            "or --engine duckdb reads all in this process",
        ),
    ],
)
def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], absent: str, arguments: list[str], line: str
) -> None:
    for name in [name for name in sys.modules if name.startswith(("kproxy.spark", f"{absent}."))]:
        monkeypatch.delitem(sys.modules, name)
    modules: dict[str, Any] = {absent: None}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    assert main([*NEEDED, *arguments]) == ExitCode.USAGE
    assert capsys.readouterr().err.splitlines() == [f"kproxy: {line}"]


def test_help_needs_no_engine() -> None:
    program = (
        "import sys; from kproxy.cli import main; main(['audit', '--help']);"
        "print([name for name in sys.modules if name.startswith(('kproxy.spark', 'pyspark', 'duckdb', 'matplotlib'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "--topics A,B|PATTERN" in done.stdout
    assert done.stdout.endswith("[]\n")
