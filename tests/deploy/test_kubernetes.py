"""The example of a sidecar: what Kubernetes takes, and what kproxy makes of it."""

from pathlib import Path

import pytest

from tests.support.manifests import (
    Manifest,
    assert_closed,
    assert_commands_find_kproxy,
    configuration,
    documents,
    kproxy_containers,
    only,
    validate,
)

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"


@pytest.fixture
def sidecar() -> list[Manifest]:
    return documents((FOLDER / "sidecar.yaml").read_text(encoding="utf-8"))


def test_kubernetes_takes_all_of_it() -> None:
    found = [document for path in FOLDER.rglob("*.yaml") for document in documents(path.read_text(encoding="utf-8"))]
    assert {document["kind"] for document in found} == {
        "ConfigMap",
        "Deployment",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "PodMonitor",
    }
    for document in found:
        validate(document)


def test_the_sidecar_starts_before_the_application_and_ends_after_it(sidecar: list[Manifest]) -> None:
    pod = only(sidecar, "Deployment")["spec"]["template"]["spec"]
    [kproxy] = pod["initContainers"]
    assert kproxy["restartPolicy"] == "Always"
    assert kproxy["startupProbe"]["httpGet"]["path"] == "/readyz"
    assert_closed(pod)


def test_kproxy_takes_its_configuration(sidecar: list[Manifest]) -> None:
    config = configuration(sidecar, {})
    pod = only(sidecar, "Deployment")["spec"]["template"]["spec"]
    [kproxy] = kproxy_containers(pod)
    assert config.listen.is_loopback
    [application] = pod["containers"]
    assert application["env"] == [{"name": "KAFKA_BOOTSTRAP_SERVERS", "value": str(config.listen)}]
    assert config.shutdown_grace_ms < 1000 * pod["terminationGracePeriodSeconds"]
    assert config.http is not None
    assert [port["containerPort"] for port in kproxy["ports"] if port["name"] == "http"] == [config.http.port]


def test_commands_find_the_control_socket_in_the_pod(sidecar: list[Manifest]) -> None:
    pod = only(sidecar, "Deployment")["spec"]["template"]["spec"]
    assert_commands_find_kproxy(configuration(sidecar, {}), pod)


def test_every_file_that_the_configuration_names_is_mounted(sidecar: list[Manifest]) -> None:
    config = configuration(sidecar, {})
    pod = only(sidecar, "Deployment")["spec"]["template"]["spec"]
    [kproxy] = kproxy_containers(pod)
    mounted = {mount["mountPath"]: mount["name"] for mount in kproxy["volumeMounts"]}
    assert set(mounted.values()) == {volume["name"] for volume in pod["volumes"]}
    paths = (
        config.upstream_ssl_ca_location,
        config.upstream_ssl_key_location,
        config.upstream_ssl_certificate_location,
    )
    assert all(path is not None and str(path.parent) in mounted for path in paths)


def test_the_network_policy_lets_in_and_out_what_is_needed(sidecar: list[Manifest]) -> None:
    config = configuration(sidecar, {})
    policy = only(sidecar, "NetworkPolicy")["spec"]
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == [
        config.http.port if config.http else 0
    ]
    out = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    assert out == {53, *(address.port for address in config.bootstrap_servers)}


def test_a_field_that_kubernetes_does_not_know_is_found(sidecar: list[Manifest]) -> None:
    deployment = only(sidecar, "Deployment")
    deployment["spec"]["template"]["spec"]["initContainers"][0]["restartPolice"] = "Always"
    with pytest.raises(Exception, match="restartPolice"):
        validate(deployment)
