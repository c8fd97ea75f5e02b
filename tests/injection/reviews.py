"""AdmissionReviews as the API server of Kubernetes 1.33 sends them: every field, and no managed ones."""

import json
from copy import deepcopy
from typing import Any, Final

Json = dict[str, Any]

UID: Final = "705ab4f5-6393-11e8-b7cc-42010a800002"
#: What the API server adds to each pod before webhooks see it.
_TOKEN: Final = "kube-api-access-8v2xk"
_MOUNT: Final = {"name": _TOKEN, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}


def pod(**changes: Any) -> Json:
    """A pod of a Deployment, labelled; ``changes`` replace keys of its metadata (labels, annotations) and spec."""
    metadata: Json = {
        "generateName": "shipper-7c9d5bd8c4-",
        "creationTimestamp": None,
        "labels": {"app": "shipper", "kproxy.io/inject": "true", "pod-template-hash": "7c9d5bd8c4"},
        "annotations": {"kproxy.io/bootstrap-servers": "kafka-1:9092,kafka-2:9092"},
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "shipper-7c9d5bd8c4",
                "uid": "b8e9f1b2-5f44-4a37-9a35-1f9b6b1c2d3e",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    spec: Json = {
        "volumes": [{"name": _TOKEN, "projected": {"sources": [], "defaultMode": 420}}],
        "containers": [
            {
                "name": "shipper",
                "image": "shipper:2.4",
                "resources": {},
                "volumeMounts": [_MOUNT],
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    for key, value in changes.items():
        (metadata if key in ("labels", "annotations", "ownerReferences", "generateName") else spec)[key] = value
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": {}}


def job_pod() -> Json:
    """A pod of a Job, with an init container and a volume of its own."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "load", "uid": "0d6c3c5e", "controller": True}
    made = pod(
        generateName="load-",
        ownerReferences=[owner],
        labels={"batch.kubernetes.io/job-name": "load", "kproxy.io/inject": "true"},
        restartPolicy="Never",
        initContainers=[{"name": "prepare", "image": "prepare:1", "resources": {}}],
    )
    made["spec"]["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "load"}})
    return made


def review_of(made: Json, **changes: Any) -> bytes:
    """The AdmissionReview for the creation of a pod; ``changes`` replace keys of the request."""
    kind, resource = {"group": "", "version": "v1", "kind": "Pod"}, {"group": "", "version": "v1", "resource": "pods"}
    request: Json = {
        "uid": UID,
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "namespace": "shop",
        "operation": "CREATE",
        "userInfo": {
            "username": "system:serviceaccount:kube-system:replicaset-controller",
            "uid": "a8f4a9c1",
            "groups": ["system:serviceaccounts", "system:authenticated"],
        },
        "object": made,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    whole = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request | changes}
    return json.dumps(whole).encode()


def apply(made: Json, patch: list[Json]) -> Json:
    """The pod with a patch of ``add`` operations applied, as RFC 6902 has it."""
    patched = deepcopy(made)
    for operation in patch:
        assert operation["op"] == "add"
        *path, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        target = patched
        for part in path:
            target = target[part]  # a parent that is not there is an error
        if isinstance(target, list):
            target.insert(len(target) if last == "-" else int(last), operation["value"])
        else:
            target[last] = operation["value"]
    return patched
