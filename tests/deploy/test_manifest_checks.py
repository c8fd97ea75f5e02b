"""Every variant of the manifests: three releases of Kubernetes accept it, and so would a careful operator."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.charts import BROKERS, render
from tests.support.manifest_checks import faults
from tests.support.manifests import RELEASES, Manifest, configuration, documents, only, validate

SIDECAR = Path(__file__).parents[2] / "deploy" / "kubernetes" / "sidecar.yaml"
STRIMZI = SIDECAR.parents[1] / "strimzi"
CLIENTS = [{"podSelector": {}}]
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "one instance": {"gateway": {"replicas": 1}},
    "no preStop": {"gateway": {"preStopSeconds": 0}},
    "node ports": {"gateway": {"service": {"type": "NodePort"}}},
    "one port for all brokers": {
        "gateway": {"brokerHostPattern": "broker-{id}.example", "service": {"type": "LoadBalancer"}},
        "tls": {"secretName": "t", "clientAuth": "required"},
    },
    "a load balancer for each pod": {"gateway": {"perPodService": {"enabled": True, "host": "kproxy-{index}.example"}}},
    "a network policy": {
        "networkPolicy": {
            "enabled": True,
            "clients": CLIENTS,
            "monitoring": CLIENTS,
            "brokers": CLIENTS,
            "extraEgress": [{"ports": [{"protocol": "TCP", "port": 443}]}],
        },
        "podMonitor": {"enabled": True},
    },
    "monitoring": {
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    },
    "secrets and volumes": {
        "upstreamTls": {"enabled": True, "caSecretName": "ca", "clientSecretName": "client"},
        "secretMounts": [{"name": "token", "secretName": "token", "mountPath": "/run/secrets/token"}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "envFrom": [{"secretRef": {"name": "more"}}],
    },
    "the configuration of a sidecar": {"gateway": {"enabled": False}},
    "a webhook": {
        "webhook": {"enabled": True, "certManager": {"enabled": True}},
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
    },
    "IPv6 alone": {
        "bootstrapServers": ["[fd00::1]:9092", "[fd00::2]:9092"],
        "gateway": {"service": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["fd00::/8"]}},
        "networkPolicy": {
            "enabled": True,
            "clients": [{"ipBlock": {"cidr": "fd00:1::/64"}}],
            "brokers": [{"ipBlock": {"cidr": "fd00::/64"}}],
        },
    },
    "OpenShift, restricted-v2": {
        "containerSecurityContext": {"runAsUser": None, "runAsGroup": None},
        "webhook": {"enabled": True, "tls": {"secretName": "webhook-tls", "caBundle": "TFMwdA=="}},
    },
    "an image by digest": {"image": {"repository": "registry.example:5000/kproxy", "digest": f"sha256:{'a' * 64}"}},
    "Strimzi": yaml.safe_load((STRIMZI / "values.yaml").read_text(encoding="utf-8")),
}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_the_chart(values: dict[str, Any], release: str) -> None:
    manifests = render(BROKERS | values)
    for manifest in manifests:
        validate(manifest, [release])
    assert faults(manifests) == []


def _gateway(variant: str) -> Manifest:
    return only(render(BROKERS | VARIANTS[variant]), "StatefulSet")["spec"]["template"]["spec"]


def test_the_variants_are_what_they_are_called() -> None:
    manifests = render(BROKERS | VARIANTS["IPv6 alone"])
    config = configuration(manifests, {"KPROXY_INSTANCE_ID": "a"})
    assert [str(server) for server in config.bootstrap_servers] == ["[fd00::1]:9092", "[fd00::2]:9092"]
    assert config.listen.host == "", "all addresses of IPv6, and of IPv4 where there is any"
    assert "runAsUser" not in _gateway("OpenShift, restricted-v2")["containers"][0]["securityContext"]
    assert _gateway("an image by digest")["containers"][0]["image"].endswith(f"@sha256:{'a' * 64}")
    config = configuration(render(VARIANTS["Strimzi"]), {"KPROXY_INSTANCE_ID": "a"})
    assert str(config.bootstrap_servers[0]) == "my-cluster-kafka-bootstrap:9093"


def sidecar() -> list[Manifest]:
    return documents(SIDECAR.read_text(encoding="utf-8"))


def test_the_example_of_a_sidecar() -> None:
    assert faults(sidecar()) == []


def _pod(manifests: list[Manifest]) -> Manifest:
    found: Manifest = only(manifests, "Deployment")["spec"]["template"]["spec"]
    return found


def _kproxy(manifests: list[Manifest]) -> Manifest:
    found: Manifest = _pod(manifests)["initContainers"][0]
    return found


def _relabel(manifests: list[Manifest]) -> None:
    only(manifests, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"] = {"app": "other"}


BROKEN: dict[str, Callable[[list[Manifest]], object]] = {
    "kproxy: no livenessProbe": lambda found: _kproxy(found).pop("livenessProbe"),
    "kproxy: restarted when it is not ready": lambda found: _kproxy(found).update(
        livenessProbe=_kproxy(found)["readinessProbe"]
    ),
    "kproxy: image registry:5000/kproxy has no version": lambda found: _kproxy(found).update(
        image="registry:5000/kproxy"
    ),
    "kproxy: image kproxy:latest has no version": lambda found: _kproxy(found).update(image="kproxy:latest"),
    "kproxy: no limits of memory": lambda found: _kproxy(found)["resources"].pop("limits"),
    "kproxy: readOnlyRootFilesystem is False": lambda found: _kproxy(found)["securityContext"].update(
        readOnlyRootFilesystem=False
    ),
    "has the cluster's credentials": lambda found: _pod(found).pop("automountServiceAccountToken"),
    "no PodDisruptionBudget": lambda found: found.remove(only(found, "PodDisruptionBudget")),
    "its pods may all be on one node": lambda found: _pod(found).pop("topologySpreadConstraints"),
    "selects no pod of this release": _relabel,
}


@pytest.mark.parametrize("fault", BROKEN)
def test_each_check_finds_its_fault(fault: str) -> None:
    manifests = copy.deepcopy(sidecar())
    BROKEN[fault](manifests)
    [found] = faults(manifests)
    assert found.endswith(fault)
