"""The keys of log lines are those of docs/logging.md, and none takes the place of one that every line has."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from kproxy.config.log_levels import SUBSYSTEMS
from kproxy.net.draining import Left

ROOT = Path(__file__).parent.parent.parent
METHODS = (
    *(f"{log}.{level}" for log in ("log", "_log") for level in ("debug", "info", "warning", "error", "exception")),
    # what procedures of transactions report (``kproxy.net.txn.reports``)
    "self._report",
    "self._tools.report",
)
#: Handed on as ``**`` by those who log for others.
PASSED_ON = {"client_id", "mechanism", "outcome", "peer", "pod"}


@cache
def calls() -> list[ast.Call]:
    """All calls in kproxy; its loggers are called ``log`` or ``_log``."""
    found: list[ast.Call] = []
    for path in sorted((ROOT / "kproxy").rglob("*.py")):
        if not {"testing", "spark", "_generated"} & set(path.parts):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found += [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return found


def calls_of(*names: str) -> Iterator[ast.Call]:
    """The calls of these functions, by the names in them."""
    return (call for call in calls() if isinstance(call.func, ast.Attribute) and ast.unparse(call.func) in names)


def documented() -> set[str]:
    page = (ROOT / "docs" / "logging.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


def test_each_key_is_documented_and_none_is_documented_in_vain() -> None:
    used = {
        keyword.arg for call in calls_of(*METHODS) for keyword in call.keywords if keyword.arg is not None
    } | PASSED_ON
    left = {*Left._fields, "control_requests"}  # what ``kproxy.app`` says at the end of a process
    assert documented() == used | left | {"suppressed"}
    assert not used & {"timestamp", "level", "subsystem", "event", "exception"}
    assert all(re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", key) for key in used)


def test_each_logger_is_of_a_known_subsystem() -> None:
    named = {
        call.args[0].value
        for call in calls_of("structlog.get_logger")
        if call.args and isinstance(call.args[0], ast.Constant)
    }
    assert named == {f"kproxy.{name}" for name in SUBSYSTEMS}
