"""The chart's monitoring: what Prometheus reads, its rules, and Grafana's dashboard, in both modes."""

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from tests.deploy.prometheus import DEPLOY, RULES, program
from tests.support.charts import BROKERS, render
from tests.support.manifests import only, validate

SIDECAR = BROKERS | {"gateway": {"enabled": False}}


def test_prometheus_reads_the_sidecars_of_an_application() -> None:
    monitor = {"enabled": True, "matchLabels": {"app.kubernetes.io/name": "shipper"}}
    spec = only(render(SIDECAR | {"podMonitor": monitor}), "PodMonitor")["spec"]
    assert spec["selector"] == {"matchLabels": {"app.kubernetes.io/name": "shipper"}}
    # The application's own port may be called http, too.
    [keep, _] = spec["podMetricsEndpoints"][0]["relabelings"]
    assert (keep["action"], keep["regex"]) == ("keep", "kproxy")


def test_prometheus_reads_the_pods_of_a_gateway() -> None:
    spec = only(render(BROKERS | {"podMonitor": {"enabled": True}}), "PodMonitor")["spec"]
    assert spec["selector"]["matchLabels"] == {"app.kubernetes.io/name": "kproxy", "app.kubernetes.io/instance": "edge"}


def test_the_pods_of_sidecars_must_be_named() -> None:
    with pytest.raises(helm_python.HelmRenderError, match=r"podMonitor\.matchLabels is empty"):
        render(SIDECAR | {"podMonitor": {"enabled": True}})


@pytest.mark.parametrize("values", [BROKERS, SIDECAR], ids=["gateway", "sidecar"])
@pytest.mark.parametrize(
    ("given", "page"), [("", None), ("https://wiki.example/kproxy", "https://wiki.example/kproxy")]
)
def test_the_rules_have_absolute_runbook_urls(values: dict[str, Any], given: str, page: str | None) -> None:
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = page or f"{project['urls']['Documentation']}/monitoring/"
    manifest = only(render(values | {"prometheusRule": {"enabled": True, "runbookUrl": given}}), "PrometheusRule")
    expected = RULES.read_text(encoding="utf-8").replace("docs/monitoring.md#", f"{page}#")
    assert manifest["spec"] == yaml.safe_load(expected)


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"
    rules.write_text(
        yaml.safe_dump(only(render(BROKERS | {"prometheusRule": {"enabled": True}}), "PrometheusRule")["spec"])
    )
    done = subprocess.run(
        [program("promtool"), "check", "rules", str(rules)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_finds_the_dashboard() -> None:
    manifests = render(BROKERS | {"dashboard": {"enabled": True, "annotations": {"folder": "Kafka"}}})
    [found] = [each for each in manifests if each["metadata"]["name"] == "edge-kproxy-dashboard"]
    validate(found)
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["metadata"]["annotations"] == {"folder": "Kafka"}
    shipped = (DEPLOY / "grafana" / "kproxy.json").read_text(encoding="utf-8")
    assert json.loads(found["data"]["kproxy.json"]) == json.loads(shipped)
