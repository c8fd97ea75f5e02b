"""Kubernetes manifests: read, compared with Kubernetes' own schemas, and what kproxy makes of their configuration."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, TypeAlias

import kubernetes_validate
import yaml

from kproxy.client import DEFAULT_SOCKET
from kproxy.config import Config, load

Manifest: TypeAlias = dict[str, Any]

#: The oldest that the native sidecar and a pause before SIGTERM need, one between, and the newest that has schemas.
RELEASES: Final = ("1.30", "1.33", kubernetes_validate.latest_version())
#: Made by operators: their schemas are not Kubernetes'.
_CUSTOM: Final = ("Certificate", "Issuer", "PodMonitor", "PrometheusRule")


def documents(text: str) -> list[Manifest]:
    """All documents of a YAML text that hold anything."""
    return [document for document in yaml.safe_load_all(text) if document]


def validate(manifest: Manifest, releases: Iterable[str] = RELEASES) -> None:
    """kubernetes_validate.ValidationError if a version of Kubernetes would not take it, or would drop a part of it."""
    if manifest["kind"] not in _CUSTOM:
        for version in releases:
            kubernetes_validate.validate(manifest, version, strict=True)


def only(manifests: list[Manifest], kind: str) -> Manifest:
    """The one manifest of a kind."""
    [found] = [manifest for manifest in manifests if manifest["kind"] == kind]
    return found


def kproxy_containers(pod: Manifest) -> Iterator[Manifest]:
    """The containers of a pod's spec that run kproxy."""
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        if container["name"] == "kproxy":
            yield container


def configuration(manifests: list[Manifest], environment: dict[str, str]) -> Config:
    """What kproxy makes of the file in the ConfigMap and of the container's environment; ConfigError if it can't."""
    with NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(only(manifests, "ConfigMap")["data"]["kproxy.yaml"])
        file.flush()
        return load({"config": file.name}, environment)


def assert_commands_find_kproxy(config: Config, pod: Manifest) -> None:
    """``kubectl exec POD -c kproxy -- kproxy txn list`` works: its default socket is open, on a volume to write to."""
    assert str(config.control_socket) == DEFAULT_SOCKET
    [kproxy] = kproxy_containers(pod)
    folder = str(Path(DEFAULT_SOCKET).parent)
    [name] = [mount["name"] for mount in kproxy["volumeMounts"] if mount["mountPath"] == folder]
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == name]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Mi"}


def assert_closed(pod: Manifest) -> None:
    """No root, a read-only image, no rights, none of the cluster's credentials."""
    assert pod["automountServiceAccountToken"] is False
    for container in kproxy_containers(pod):
        context = pod.get("securityContext", {}) | container["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] == 65532
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["resources"]["limits"]["memory"]
        assert {"livenessProbe", "readinessProbe", "startupProbe"} <= container.keys()
