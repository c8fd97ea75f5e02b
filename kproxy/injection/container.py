"""The container and the volumes that a pod gets: those of deploy/kubernetes/sidecar.yaml."""

from typing import Any, Final

from kproxy.injection.wishes import HTTP_PORT, Sidecar

NAME: Final = "kproxy"
#: An application may call a port of its own http, and a Service may look for it by that name.
_PORT_NAME: Final = "kproxy-http"
_START_SECONDS: Final = 300
_RUN, _CONFIG, _SECRET = "kproxy-run", "kproxy-config", "kproxy-secret"


def container(sidecar: Sidecar) -> dict[str, Any]:
    """The native sidecar: an init container that is restarted, so it starts before all others and ends after them."""
    return {
        "name": NAME,
        "restartPolicy": "Always",
        "image": sidecar.image,
        "args": ["run"],
        "env": _environment(sidecar),
        "ports": [{"name": _PORT_NAME, "containerPort": HTTP_PORT, "protocol": "TCP"}],
        # The application's containers start when clients are served.
        "startupProbe": _probe("/readyz", period=1, failures=_START_SECONDS),
        "livenessProbe": _probe("/healthz", period=10, failures=3),
        "readinessProbe": _probe("/readyz" if sidecar.readiness == "kafka" else "/healthz", period=5, failures=2),
        "resources": _resources(sidecar),
        "securityContext": {
            "runAsNonRoot": True,
            **_user(sidecar),
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": name, "mountPath": path} | flags for name, path, flags, _ in _volumes(sidecar)],
    }


def volumes(sidecar: Sidecar) -> list[dict[str, Any]]:
    """What is mounted into the container."""
    return [{"name": name} | source for name, _, _, source in _volumes(sidecar)]


def _volumes(sidecar: Sidecar) -> list[tuple[str, str, dict[str, bool], dict[str, Any]]]:
    """Of each volume: name, mount path, flags of the mount, and where its content comes from."""
    read_only = {"readOnly": True}
    found: list[tuple[str, str, dict[str, bool], dict[str, Any]]] = [
        (_RUN, "/run/kproxy", {}, {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}})
    ]
    if sidecar.config_map is not None:
        found.append((_CONFIG, "/etc/kproxy", read_only, {"configMap": {"name": sidecar.config_map}}))
    if sidecar.secret is not None:
        source = {"secret": {"secretName": sidecar.secret, "defaultMode": 0o444}}
        found.append((_SECRET, "/run/secrets/kproxy", read_only, source))
    return found


def _environment(sidecar: Sidecar) -> list[dict[str, Any]]:
    values = {
        "KPROXY_CONFIG": None if sidecar.config_map is None else "/etc/kproxy/kproxy.yaml",
        "KPROXY_BOOTSTRAP_SERVERS": sidecar.bootstrap_servers,
        "KPROXY_LISTEN": sidecar.listen,
        # Probes and kubectl exec expect these, whatever a file says.
        "KPROXY_HTTP": f":{HTTP_PORT}",
        "KPROXY_CONTROL_SOCKET": "/run/kproxy/control.sock",
    }
    given = [{"name": name, "value": value} for name, value in values.items() if value is not None]
    # A restarted container has its pod's name again, and so finds what the one before it left unconfirmed.
    return [*given, {"name": "KPROXY_INSTANCE_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]


def _user(sidecar: Sidecar) -> dict[str, int]:
    if sidecar.run_as_user == "any":
        return {}
    return {"runAsUser": int(sidecar.run_as_user), "runAsGroup": int(sidecar.run_as_user)}


def _probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    get = {"path": path, "port": _PORT_NAME}
    return {"httpGet": get, "periodSeconds": period, "timeoutSeconds": 3, "failureThreshold": failures}


def _resources(sidecar: Sidecar) -> dict[str, Any]:
    limits = {"memory": sidecar.memory_limit}
    if sidecar.cpu_limit is not None:
        limits["cpu"] = sidecar.cpu_limit
    return {"requests": {"cpu": sidecar.cpu_request, "memory": sidecar.memory_request}, "limits": limits}
