"""The laptop's compose file: the specification takes it, its parts fit together, and its old producer works."""

import os
import subprocess
from pathlib import Path
from typing import Any

import compose_spec
import pytest
import yaml

from kproxy.config import load
from kproxy.demo.demo_broker import running_fake
from kproxy.demo.sidecar import open_sidecar
from tests.support.clients import python_driver

DEPLOY = Path(__file__).parents[2] / "deploy"
FILE = DEPLOY / "compose.yaml"


@pytest.fixture
def services() -> dict[str, Any]:
    services = compose_spec.PyCompose.from_yaml(FILE.read_text(encoding="utf-8")).to_dict()["services"]
    assert isinstance(services, dict)
    return services


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("read_only", "read_onli"), ("service_healthy", "healthy"), ("stop_grace_period: 20s", "stop_grace_period: soon")],
)
def test_the_specification_would_find_a_fault(right: str, wrong: str) -> None:
    text = FILE.read_text(encoding="utf-8")
    assert right in text
    with pytest.raises(ValueError, match=wrong.split()[-1]):
        compose_spec.PyCompose.from_yaml(text.replace(right, wrong)).to_spec()


def test_everything_is_there(services: dict[str, Any]) -> None:
    assert set(services) == {"grafana", "kafka", "kproxy", "legacy-producer", "prometheus"}
    named = {name for service in services.values() for name in service.get("depends_on", {})}
    assert named <= set(services)
    text = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]
    mounted = [mount.split(":")[0] for service in text.values() for mount in service.get("volumes", [])]
    for path in (path for path in mounted if path.startswith("./")):
        assert (DEPLOY / path).is_dir(), path
    assert (DEPLOY / text["kproxy"]["build"]["context"] / text["kproxy"]["build"]["dockerfile"]).is_file()
    assert (DEPLOY / text["legacy-producer"]["build"] / "Dockerfile").is_file()


def test_kproxy_takes_its_environment(services: dict[str, Any]) -> None:
    text = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]
    config = load({}, text["kproxy"]["environment"])
    assert text["legacy-producer"]["environment"]["BOOTSTRAP_SERVERS"] == str(config.advertised_address)
    assert config.broker_port_range is not None
    published = f"{config.listen.port}-{config.broker_port_range[-1]}"
    assert f"127.0.0.1:{published}:{published}" in text["kproxy"]["ports"]
    assert config.http is not None
    assert f"127.0.0.1:{config.http.port}:{config.http.port}" in text["kproxy"]["ports"]


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    grafana = DEPLOY / "compose" / "grafana"
    [source] = yaml.safe_load((grafana / "datasources" / "prometheus.yaml").read_text(encoding="utf-8"))["datasources"]
    text = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]
    assert source["url"] == "http://kproxy:9090"
    assert text["prometheus"]["network_mode"] == "service:kproxy"
    [provider] = yaml.safe_load((grafana / "dashboards" / "kproxy.yaml").read_text(encoding="utf-8"))["providers"]
    assert f"./grafana:{provider['options']['path']}:ro" in text["grafana"]["volumes"]


def test_the_old_producer_works_through_kproxy() -> None:
    driver = python_driver(str(DEPLOY / "compose" / "legacy" / "producer.py"), "kafka-python==1.4.7")
    with running_fake() as brokers, open_sidecar(brokers) as sidecar:
        environment = os.environ | dict(driver.environment) | {"BOOTSTRAP_SERVERS": sidecar.address}
        done = subprocess.run([*driver.argv, "3"], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "3 readings acknowledged\n"), done.stderr
