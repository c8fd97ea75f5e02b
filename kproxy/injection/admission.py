"""AdmissionReview of admission.k8s.io/v1: a request in, a response with a JSON patch (RFC 6902) out."""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from kproxy.injection.container import NAME, container, volumes
from kproxy.injection.wishes import PREFIX, Sidecar, WishRefused, shown, wished

API_VERSION: Final = "admission.k8s.io/v1"
#: The request holds a pod once; etcd takes none that is longer than 1.5 MB with all that is added to it.
LONGEST_BODY: Final = 1 << 20
#: More commas than a pod has: a value takes a hundred times the byte that it may have in the request.
_MOST_COMMAS: Final = 100_000
#: Whether a pod gets the sidecar: "true" or "false".
LABEL: Final = f"{PREFIX}inject"
#: On pods that got it, so that a PodMonitor finds them.
INJECTED_LABEL: Final = f"{PREFIX}injected"
#: A pod's terminationGracePeriodSeconds, if it says nothing.
_GRACE_SECONDS: Final = 30
#: kproxy's shutdown.grace.ms, and a little for the application before it.
_NEEDED_SECONDS: Final = 12
_LONGEST_UID: Final = 256

Json = dict[str, Any]


class _Malformed(Exception):
    """A request that is no AdmissionReview of a pod."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The response to one request, and what the log says of it."""

    status: HTTPStatus
    body: bytes
    outcome: str
    reason: str
    pod: str


def review(body: bytes, defaults: Sidecar, *, unlabelled: bool) -> Decision:
    """Decide on one AdmissionReview; no input raises.

    ``unlabelled``: pods without the label get the sidecar, too, because their namespace asks for it.
    """
    uid, pod = "", ""
    try:
        request = _request(body)
        uid = _text(request.get("uid"), "request.uid")
        if not 0 < len(uid) <= _LONGEST_UID:
            uid = ""
            raise _Malformed("request.uid must be text that is not empty")
        pod = _name(request)
        injected = _injection(request, defaults, unlabelled)
    except _Malformed as error:
        # Kubernetes accepts only a response that has the request's uid.
        status = HTTPStatus.OK if uid else HTTPStatus.BAD_REQUEST
        return _decision(_refusal(uid, HTTPStatus.BAD_REQUEST, str(error)), "malformed", str(error), pod, status)
    except WishRefused as error:
        return _decision(_refusal(uid, HTTPStatus.UNPROCESSABLE_ENTITY, str(error)), "refused", str(error), pod)
    if isinstance(injected, str):
        return _decision({"uid": uid, "allowed": True} | _warning(injected), "left alone", injected, pod)
    patch, warning = injected
    response = {
        "uid": uid,
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
    }
    return _decision(response | _warning(warning), "injected", warning, pod)


def unread(status: HTTPStatus, reason: str) -> Decision:
    """The response to a request whose body was not read to its end."""
    return _decision(_refusal("", status, reason), "malformed", reason, "", status)


def _decision(response: Json, outcome: str, reason: str, pod: str, status: HTTPStatus = HTTPStatus.OK) -> Decision:
    answer = {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}
    return Decision(status, json.dumps(answer).encode(), outcome, reason, pod)


def _refusal(uid: str, status: HTTPStatus, message: str) -> Json:
    return {"uid": uid, "allowed": False, "status": {"status": "Failure", "message": message, "code": status}}


def _warning(text: str) -> Json:
    return {"warnings": [f"kproxy: {text}"]} if text else {}


def _request(body: bytes) -> Json:
    if body.count(b",") > _MOST_COMMAS:
        raise _Malformed(f"the request has more than {_MOST_COMMAS} values")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise _Malformed("the request is not JSON") from None
    whole = _mapping(found, "the request")
    kind = (whole.get("apiVersion"), whole.get("kind"))
    if kind != (API_VERSION, "AdmissionReview"):
        raise _Malformed(f"must be an AdmissionReview of {API_VERSION}")
    return _mapping(whole.get("request"), "request")


def _name(request: Json) -> str:
    """Namespace and name of the pod, for the log; a pod of a Deployment has only the beginning of a name."""
    metadata = _mapping(request.get("object") or {}, "request.object").get("metadata") or {}
    name = request.get("name") or _mapping(metadata, "request.object.metadata").get("generateName") or ""
    return ascii(f"{request.get('namespace') or ''}/{name}")[1:-1][:_LONGEST_UID]


def _injection(request: Json, defaults: Sidecar, unlabelled: bool) -> tuple[list[Json], str] | str:
    """The patch and a warning, both may be empty; text: why the pod is left alone."""
    kind = _mapping(request.get("kind"), "request.kind").get("kind")
    if (kind, request.get("operation")) != ("Pod", "CREATE") or request.get("subResource"):
        return "the sidecar is only injected when a pod is created"
    pod = _mapping(request.get("object"), "request.object")
    metadata = _mapping(pod.get("metadata"), "request.object.metadata")
    spec = _mapping(pod.get("spec"), "request.object.spec")
    labels = _texts(metadata, "labels")
    if not _is_wanted(labels, unlabelled):
        return ""
    names = _names(spec, "containers") | _names(spec, "initContainers")
    if NAME in names:
        return "" if INJECTED_LABEL in labels else f"the pod has a container {NAME} of its own, and is left alone"
    if spec.get("hostNetwork"):
        return "a pod with hostNetwork is left alone: its ports are those of the node, and may be taken"
    sidecar = wished(defaults, _texts(metadata, "annotations"))
    added = volumes(sidecar)
    taken = sorted(_names(spec, "volumes") & {volume["name"] for volume in added})
    if taken:
        raise WishRefused(f"the pod has a volume {taken[0]} of its own: give it a name that does not begin with kproxy")
    patch = [
        *_insert("/spec/initContainers", spec.get("initContainers"), [container(sidecar)], at="0"),
        *_insert("/spec/volumes", spec.get("volumes"), added, at="-"),
        *_label(metadata.get("labels")),
    ]
    return patch, _short_grace(spec)


def _is_wanted(labels: Json, unlabelled: bool) -> bool:
    value = labels.get(LABEL)
    if value not in ("true", "false", None):
        raise WishRefused(f"label {LABEL} = {shown(value)}: must be true or false")
    return unlabelled if value is None else value == "true"


def _insert(path: str, there: Any, items: Iterable[Json], at: str) -> list[Json]:
    """Operations that put items into a list, which is made if it is not there."""
    if not there:
        return [{"op": "add", "path": path, "value": list(items)}]
    return [{"op": "add", "path": f"{path}/{at}", "value": item} for item in items]


def _label(labels: Any) -> list[Json]:
    if not labels:
        return [{"op": "add", "path": "/metadata/labels", "value": {INJECTED_LABEL: "true"}}]
    pointer = INJECTED_LABEL.replace("~", "~0").replace("/", "~1")
    return [{"op": "add", "path": f"/metadata/labels/{pointer}", "value": "true"}]


def _short_grace(spec: Json) -> str:
    seconds = spec.get("terminationGracePeriodSeconds", _GRACE_SECONDS)
    if isinstance(seconds, int) and seconds < _NEEDED_SECONDS:
        return (
            f"terminationGracePeriodSeconds = {seconds} is for the application and for kproxy, one after the other: "
            f"{_NEEDED_SECONDS} or more leaves kproxy time to finish its requests"
        )
    return ""


def _mapping(value: Any, where: str) -> Json:
    if not isinstance(value, dict):
        raise _Malformed(f"{where} must be an object")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _Malformed(f"{where} must be text")
    return value


def _texts(metadata: Json, name: str) -> dict[str, str]:
    """Labels or annotations."""
    where = f"request.object.metadata.{name}"
    found = _mapping(metadata.get(name) or {}, where)
    return {key: _text(value, where) for key, value in found.items()}


def _names(spec: Json, name: str) -> set[str]:
    """The names of containers or volumes."""
    where = f"request.object.spec.{name}"
    found = spec.get(name) or []
    if not isinstance(found, list):
        raise _Malformed(f"{where} must be a list")
    return {_text(_mapping(each, where).get("name"), f"{where}.name") for each in found}
