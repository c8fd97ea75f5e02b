"""The rules for Prometheus: they parse, fire when they should, and each has its page."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from kproxy.control.metrics import make_declared_registry, make_registry
from kproxy.injection.webhook_stats import WebhookStats
from kproxy.proxy.stats import Stats
from tests.deploy.prometheus import DEPLOY, RULES, program

TESTS = RULES.with_name("kproxy.rules.test.yml")
RUNBOOK = "docs/monitoring.md"


def promtool(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([program("promtool"), *arguments], input=stdin, capture_output=True, timeout=60, check=False)


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


ALERTS = [rule for rule in rules() if "alert" in rule]


@pytest.mark.parametrize(
    "arguments",
    [("check", "config", str(DEPLOY / "prometheus" / "prometheus.yml")), ("test", "rules", str(TESTS))],
    ids=["the configuration and its rules", "the tests of the rules"],
)
def test_promtool_accepts_them(arguments: tuple[str, ...]) -> None:
    done = promtool(*arguments)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


def test_the_tests_of_the_rules_can_fail(tmp_path: Path) -> None:
    rule_text = RULES.read_text(encoding="utf-8")
    broken = rule_text.replace("kproxy_ready == bool 0", "kproxy_ready == bool 1")
    (tmp_path / RULES.name).write_text(broken, encoding="utf-8")
    (tmp_path / TESTS.name).write_text(TESTS.read_text(encoding="utf-8"), encoding="utf-8")
    done = promtool("test", "rules", str(tmp_path / TESTS.name))
    assert done.returncode != 0
    assert b"KproxyNotReady" in done.stdout + done.stderr


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_each_alert_says_what_it_means_and_what_to_do(rule: dict[str, Any]) -> None:
    name = rule["alert"]
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"{RUNBOOK}#{name.lower()}"
    page = (DEPLOY.parent / RUNBOOK).read_text(encoding="utf-8")
    assert re.search(rf"^### {name}$", page, re.MULTILINE), f"{RUNBOOK} does not say what to do"
    fires = re.findall(r'alertname="(\w+)"|alertname: (\w+)', TESTS.read_text(encoding="utf-8"))
    assert name in {quoted or bare for quoted, bare in fires}, "no test makes it fire"


def test_the_page_of_alerts_has_no_others() -> None:
    page = (DEPLOY.parent / RUNBOOK).read_text(encoding="utf-8")
    assert re.findall(r"^### (Kproxy\w+)$", page, re.MULTILINE) == [rule["alert"] for rule in ALERTS]


@pytest.mark.parametrize(
    "registry", [make_registry(Stats()), make_declared_registry(WebhookStats())], ids=["kproxy", "webhook"]
)
def test_promtool_finds_no_fault_in_an_empty_page(registry: CollectorRegistry) -> None:
    page = generate_latest(registry)
    done = promtool("check", "metrics", stdin=page)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
