"""Checks of whole sets of manifests in the spirit of kube-score: what Kubernetes accepts, but operators would not."""

from collections.abc import Iterator
from typing import Any

from tests.support.manifests import Manifest

_WORKLOADS = ("Deployment", "StatefulSet")


def faults(manifests: list[Manifest]) -> list[str]:
    """Return what is wrong, one line for each fault; nothing if all is well."""
    return [fault for manifest in manifests for fault in _faults(manifest, manifests)]


def _faults(manifest: Manifest, others: list[Manifest]) -> Iterator[str]:
    where = f"{manifest['kind']} {manifest['metadata']['name']}"
    if manifest["kind"] in _WORKLOADS:
        template = manifest["spec"]["template"]
        yield from (f"{where}: {fault}" for fault in _pod_faults(template["spec"]))
        yield from (f"{where}: {fault}" for fault in _probe_faults(template["spec"]))
        yield from (f"{where}: {fault}" for fault in _replica_faults(manifest, others))
    elif manifest["kind"] == "Pod":
        yield from (f"{where}: {fault}" for fault in _pod_faults(manifest["spec"]))
    elif manifest["kind"] in ("Service", "NetworkPolicy", "PodDisruptionBudget"):
        spec = manifest["spec"]
        selector = spec.get("selector") or spec["podSelector"]
        if not any(_selects(selector, other) for other in others if other["kind"] in _WORKLOADS):
            yield f"{where}: selects no pod of this release"


def _selects(selector: Manifest, workload: Manifest) -> bool:
    """Whether a selector finds the pods of a workload; a StatefulSet gives its pods a label with their names."""
    wanted = dict(selector.get("matchLabels", selector))
    pod = wanted.pop("statefulset.kubernetes.io/pod-name", None)
    name = workload["metadata"]["name"]
    if pod is not None and pod not in [f"{name}-{number}" for number in range(workload["spec"]["replicas"])]:
        return False
    return bool(wanted.items() <= workload["spec"]["template"]["metadata"]["labels"].items())


def _containers(pod: Manifest) -> list[Manifest]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def _pod_faults(pod: Manifest) -> Iterator[str]:
    if pod.get("automountServiceAccountToken") is not False:
        yield "has the cluster's credentials"
    for container in _containers(pod):
        yield from (f"{container['name']}: {fault}" for fault in _container_faults(container, pod))


def _container_faults(container: Manifest, pod: Manifest) -> Iterator[str]:
    _, _, tag = container["image"].rpartition("/")[2].partition(":")
    if tag in ("", "latest"):
        yield f"image {container['image']} has no version"
    resources = container.get("resources", {})
    for kind, name in (("requests", "cpu"), ("requests", "memory"), ("limits", "memory")):
        if name not in resources.get(kind, {}):
            yield f"no {kind} of {name}"
    context: dict[str, Any] = pod.get("securityContext", {}) | container.get("securityContext", {})
    wanted: dict[str, Any] = {
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    yield from (f"{key} is {context.get(key)}" for key, value in wanted.items() if context.get(key) != value)


def _probe_faults(pod: Manifest) -> Iterator[str]:
    """Only of kproxy: an application's probes are its own affair."""
    for container in _containers(pod):
        if container["name"] == "kproxy":
            missing = {"livenessProbe", "readinessProbe", "startupProbe"} - container.keys()
            yield from (f"kproxy: no {probe}" for probe in sorted(missing))
            if container.get("livenessProbe", 0) == container.get("readinessProbe", 1):
                yield "kproxy: restarted when it is not ready"


def _replica_faults(workload: Manifest, others: list[Manifest]) -> Iterator[str]:
    if workload["spec"]["replicas"] == 1:
        return
    budgets = [other["spec"] for other in others if other["kind"] == "PodDisruptionBudget"]
    if not any(_selects(budget["selector"], workload) for budget in budgets):
        yield "no PodDisruptionBudget"
    pod = workload["spec"]["template"]["spec"]
    spread = [each["labelSelector"] for each in pod.get("topologySpreadConstraints", [])]
    if not any(_selects(selector, workload) for selector in spread) and "podAntiAffinity" not in pod.get(
        "affinity", {}
    ):
        yield "its pods may all be on one node"
