"""docs/injection.md: its annotations are those that exist, its example is injected, its certificate can be used."""

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import generate_latest

from kproxy.control.metrics import make_declared_registry
from kproxy.injection.webhook_stats import WebhookStats
from kproxy.injection.wishes import PARSERS, Sidecar, wished
from kproxy.net.tls_context import TlsFiles, server_context

PAGE = (Path(__file__).parents[2] / "docs" / "injection.md").read_text(encoding="utf-8")


def test_every_annotation_is_explained() -> None:
    table = PAGE.partition("\n## Annotations\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`(.*?)`", cell)} == set(PARSERS)


def test_every_metric_is_explained() -> None:
    page = generate_latest(make_declared_registry(WebhookStats())).decode()
    found = dict(re.findall(r"^# HELP (kproxy_webhook_\S+) (.*)$", page, re.MULTILINE))
    table = PAGE.partition("\n## Metrics\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| \w+ \| \w* ?\| (.*) \|$", table, re.MULTILINE)
    assert dict(rows) == found


def test_the_example_asks_for_a_sidecar() -> None:
    [block] = re.findall(r"^```yaml\n(# deployment\.yaml\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    metadata: dict[str, Any] = yaml.safe_load(block)["spec"]["template"]["metadata"]
    assert metadata["labels"]["kproxy.io/inject"] == "true"
    assert wished(Sidecar("kproxy:1"), metadata["annotations"]).memory_limit == "512Mi"


def test_the_certificate_of_the_page_can_be_used(tmp_path: Path) -> None:
    start = PAGE.index("    name=injector")
    commands = PAGE[start : PAGE.index("    kubectl", start)]
    done = subprocess.run(
        ["bash", "-euc", commands], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    server_context(TlsFiles(tmp_path / "tls.crt", tmp_path / "tls.key"), "none")
    checked = [
        "openssl",
        "verify",
        "-CAfile",
        "ca.crt",
        "-verify_hostname",
        "injector-kproxy-webhook.kafka.svc",
        "tls.crt",
    ]
    subprocess.run(checked, cwd=tmp_path, capture_output=True, check=True, timeout=60)
