"""Requests of the API server in, patches out: applied, and checked by the schemas of Kubernetes."""

import base64
import json
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.config import load
from kproxy.injection.admission import INJECTED_LABEL, Decision, review, unread
from kproxy.injection.wishes import Sidecar
from tests.injection.reviews import UID, Json, apply, job_pod, pod, review_of
from tests.support.manifests import assert_commands_find_kproxy, kproxy_containers, validate

DEFAULTS = Sidecar("registry.example/kproxy:0.1.0")
LABEL = "kproxy.io/inject"


def answer(decision: Decision) -> Json:
    """The response, which has the form that the API server demands."""
    assert decision.status == HTTPStatus.OK
    whole = json.loads(decision.body)
    assert (whole["apiVersion"], whole["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert whole["response"]["uid"] == UID
    return whole["response"]


def injected(made: Json, defaults: Sidecar = DEFAULTS, **changes: Any) -> Json:
    """The pod after injection, which Kubernetes takes; no sidecar: the pod as it was."""
    response = answer(review(review_of(made, **changes), defaults, unlabelled=False))
    assert response["allowed"] is True
    if "patch" not in response:
        return made
    assert response["patchType"] == "JSONPatch"
    patched = apply(made, json.loads(base64.b64decode(response["patch"])))
    whole = {key: value for key, value in patched.items() if key != "status"}
    whole["metadata"] = patched["metadata"] | {"name": "shipper-7c9d5bd8c4-x2x4z"}
    validate(whole)
    return patched


def refusal(made: Json) -> str:
    response = answer(review(review_of(made), DEFAULTS, unlabelled=False))
    assert response["allowed"] is False
    assert "patch" not in response
    assert (response["status"]["status"], response["status"]["code"]) == ("Failure", 422)
    return response["status"]["message"]


def annotated(**wishes: str) -> Json:
    return pod(annotations={f"kproxy.io/{name.replace('_', '-')}": text for name, text in wishes.items()})


def environment(patched: Json) -> dict[str, str]:
    [kproxy] = kproxy_containers(patched["spec"])
    return {entry["name"]: entry.get("value", "shipper-x2x4z") for entry in kproxy["env"]}


def test_a_pod_of_a_deployment_gets_the_sidecar() -> None:
    made = pod()
    patched = injected(made)
    [kproxy] = patched["spec"]["initContainers"]
    assert (kproxy["name"], kproxy["restartPolicy"]) == ("kproxy", "Always")
    assert kproxy["image"] == "registry.example/kproxy:0.1.0"
    assert patched["spec"]["containers"] == made["spec"]["containers"]
    assert patched["metadata"]["labels"] == made["metadata"]["labels"] | {INJECTED_LABEL: "true"}
    names = [volume["name"] for volume in patched["spec"]["volumes"]]
    assert names == [made["spec"]["volumes"][0]["name"], "kproxy-run"]


def test_kproxy_takes_the_environment_of_the_sidecar() -> None:
    patched = injected(annotated(bootstrap_servers="kafka-1:9092", listen="127.0.0.1:9099"))
    config = load({}, environment(patched))
    assert [str(address) for address in config.bootstrap_servers] == ["kafka-1:9092"]
    assert str(config.listen) == "127.0.0.1:9099"
    assert config.instance_id == "shipper-x2x4z"
    [kproxy] = kproxy_containers(patched["spec"])
    [port] = kproxy["ports"]
    assert config.http is not None
    assert port["containerPort"] == config.http.port
    assert {kproxy[probe]["httpGet"]["port"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")} == {
        port["name"]
    }
    assert_commands_find_kproxy(config, patched["spec"])


def test_readiness_need_not_follow_kafka() -> None:
    """A pod that is not ready is taken out of its Services, whatever else it does for them."""
    for wish, path in (("kafka", "/readyz"), ("kproxy", "/healthz")):
        [kproxy] = kproxy_containers(injected(annotated(bootstrap_servers="k:1", readiness=wish))["spec"])
        assert kproxy["readinessProbe"]["httpGet"]["path"] == path
        assert kproxy["startupProbe"]["httpGet"]["path"] == "/readyz"


def test_a_cluster_may_choose_the_user() -> None:
    [kproxy] = kproxy_containers(injected(annotated(bootstrap_servers="k:1", run_as_user="any"))["spec"])
    assert not {"runAsUser", "runAsGroup"} & kproxy["securityContext"].keys()
    assert kproxy["securityContext"]["runAsNonRoot"]
    [kproxy] = kproxy_containers(injected(annotated(bootstrap_servers="k:1", run_as_user="1000"))["spec"])
    assert (kproxy["securityContext"]["runAsUser"], kproxy["securityContext"]["runAsGroup"]) == (1000, 1000)


def test_the_sidecar_starts_before_the_other_init_containers_of_a_job() -> None:
    made = job_pod()
    patched = injected(made)
    assert [container["name"] for container in patched["spec"]["initContainers"]] == ["kproxy", "prepare"]
    assert [volume["name"] for volume in patched["spec"]["volumes"]][1:] == ["data", "kproxy-run"]


def test_a_pod_without_lists_and_labels_gets_them() -> None:
    made = pod()
    del made["spec"]["volumes"]
    made["spec"]["initContainers"] = None
    made["metadata"]["labels"] = None
    response = answer(review(review_of(made), DEFAULTS, unlabelled=True))
    patched = apply(made, json.loads(base64.b64decode(response["patch"])))
    assert [container["name"] for container in patched["spec"]["initContainers"]] == ["kproxy"]
    assert [volume["name"] for volume in patched["spec"]["volumes"]] == ["kproxy-run"]
    assert patched["metadata"]["labels"] == {INJECTED_LABEL: "true"}


@pytest.mark.parametrize("made", [pod(), job_pod()], ids=["deployment", "job"])
def test_a_pod_that_has_the_sidecar_is_left_alone(made: Json) -> None:
    patched = injected(made)
    response = answer(review(review_of(patched), DEFAULTS, unlabelled=False))
    assert response == {"uid": UID, "allowed": True}


def test_a_sidecar_of_the_pods_own_is_left_alone_with_a_warning() -> None:
    made = pod(initContainers=[{"name": "kproxy", "image": "mine:1", "restartPolicy": "Always"}])
    response = answer(review(review_of(made), DEFAULTS, unlabelled=False))
    assert "patch" not in response
    assert response["warnings"] == ["kproxy: the pod has a container kproxy of its own, and is left alone"]


@pytest.mark.parametrize(
    ("labels", "unlabelled", "gets"),
    [
        ({LABEL: "true"}, False, True),
        ({LABEL: "true"}, True, True),
        ({LABEL: "false"}, False, False),
        ({LABEL: "false"}, True, False),
        ({}, False, False),
        ({"app": "shipper"}, True, True),
        (None, False, False),
    ],
)
def test_labels_decide(labels: Json | None, unlabelled: bool, gets: bool) -> None:
    response = answer(review(review_of(pod(labels=labels)), DEFAULTS, unlabelled=unlabelled))
    assert response["allowed"] is True
    assert ("patch" in response) is gets


def test_a_dry_run_is_answered_like_any_other() -> None:
    real = review(review_of(pod()), DEFAULTS, unlabelled=False)
    dry = review(review_of(pod(), dryRun=True), DEFAULTS, unlabelled=False)
    assert dry == real


@pytest.mark.parametrize(
    "changes",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"subResource": "ephemeralcontainers"},
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
    ],
)
def test_all_but_the_creation_of_a_pod_is_let_through(changes: Json) -> None:
    response = answer(review(review_of(pod(), **changes), DEFAULTS, unlabelled=True))
    assert response["allowed"] is True
    assert response["warnings"] == ["kproxy: the sidecar is only injected when a pod is created"]


def test_a_pod_on_the_nodes_network_is_left_alone_with_a_warning() -> None:
    response = answer(review(review_of(pod(hostNetwork=True)), DEFAULTS, unlabelled=False))
    assert "patch" not in response
    [warning] = response["warnings"]
    assert "hostNetwork" in warning


def test_a_short_grace_period_is_warned_of() -> None:
    response = answer(review(review_of(pod(terminationGracePeriodSeconds=5)), DEFAULTS, unlabelled=False))
    assert "patch" in response
    [warning] = response["warnings"]
    assert warning.startswith("kproxy: terminationGracePeriodSeconds = 5 ")


def test_a_config_map_and_a_secret_are_mounted() -> None:
    patched = injected(annotated(config_map="shipper-kproxy", secret="kafka-client"))
    [kproxy] = kproxy_containers(patched["spec"])
    mounts = {mount["name"]: mount["mountPath"] for mount in kproxy["volumeMounts"] if mount.get("readOnly")}
    assert mounts == {"kproxy-config": "/etc/kproxy", "kproxy-secret": "/run/secrets/kproxy"}
    sources = {volume["name"]: volume for volume in patched["spec"]["volumes"]}
    assert sources["kproxy-config"]["configMap"] == {"name": "shipper-kproxy"}
    assert sources["kproxy-secret"]["secret"]["secretName"] == "kafka-client"
    assert environment(patched)["KPROXY_CONFIG"] == "/etc/kproxy/kproxy.yaml"


def test_the_file_of_a_pod_names_the_brokers_unless_an_annotation_does() -> None:
    defaults = replace(DEFAULTS, bootstrap_servers="default:9092")
    assert "KPROXY_BOOTSTRAP_SERVERS" not in environment(injected(annotated(config_map="c"), defaults))
    both = environment(injected(annotated(config_map="c", bootstrap_servers="own:9092"), defaults))
    assert both["KPROXY_BOOTSTRAP_SERVERS"] == "own:9092"
    assert environment(injected(pod(annotations=None), defaults))["KPROXY_BOOTSTRAP_SERVERS"] == "default:9092"


def test_image_and_resources_by_annotation() -> None:
    patched = injected(
        annotated(
            bootstrap_servers="kafka:9092",
            image="mirror.example:5000/kproxy@sha256:0123",
            cpu_request="50m",
            cpu_limit="1.5",
            memory_request="128Mi",
            memory_limit="1Gi",
        )
    )
    [kproxy] = kproxy_containers(patched["spec"])
    assert kproxy["image"] == "mirror.example:5000/kproxy@sha256:0123"
    assert kproxy["resources"] == {
        "requests": {"cpu": "50m", "memory": "128Mi"},
        "limits": {"cpu": "1.5", "memory": "1Gi"},
    }


def test_a_wrong_annotation_is_refused_with_its_value_and_what_is_valid() -> None:
    text = refusal(annotated(bootstrap_servers="kafka"))
    assert text == "annotation kproxy.io/bootstrap-servers = 'kafka': must be HOST:PORT"


def test_a_wrong_label_is_refused() -> None:
    assert refusal(pod(labels={LABEL: "yes"})) == "label kproxy.io/inject = 'yes': must be true or false"


def test_a_volume_of_the_same_name_is_refused() -> None:
    text = refusal(pod(volumes=[{"name": "kproxy-run", "emptyDir": {}}]))
    assert text.startswith("the pod has a volume kproxy-run of its own")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the request is not JSON"),
        (b"\xff\xfe", "the request is not JSON"),
        (b"[" * 100_000, "the request is not JSON"),
        (b"[]", "the request must be an object"),
        (b"{}", "must be an AdmissionReview of admission.k8s.io/v1"),
        (
            b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}',
            "must be an AdmissionReview of admission.k8s.io/v1",
        ),
        (b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}', "request must be an object"),
        (review_of(pod(), uid=7), "request.uid must be text"),
        (review_of(pod(), uid=""), "request.uid must be text that is not empty"),
    ],
)
def test_what_is_no_request_is_answered_with_an_error(body: bytes, message: str) -> None:
    decision = review(body, DEFAULTS, unlabelled=False)
    assert decision.status == HTTPStatus.BAD_REQUEST
    assert decision.outcome == "malformed"
    response = json.loads(decision.body)["response"]
    assert response["allowed"] is False
    assert response["status"] == {"status": "Failure", "message": message, "code": 400}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"object": []}, "request.object must be an object"),
        ({"object": {"metadata": {}}}, "request.object.spec must be an object"),
        ({"object": {"spec": {}}}, "request.object.metadata must be an object"),
        ({"object": pod(labels={LABEL: True})}, "request.object.metadata.labels must be text"),
        ({"object": pod(labels=[1])}, "request.object.metadata.labels must be an object"),
        ({"object": pod(containers={"a": 1})}, "request.object.spec.containers must be a list"),
        ({"object": pod(containers=["a"])}, "request.object.spec.containers must be an object"),
        ({"object": pod(volumes=[{}])}, "request.object.spec.volumes.name must be text"),
        ({"kind": "Pod"}, "request.kind must be an object"),
    ],
)
def test_a_request_whose_pod_is_malformed_is_refused_with_its_uid(changes: Json, message: str) -> None:
    response = answer(review(review_of(pod(), **changes), DEFAULTS, unlabelled=False))
    assert response["allowed"] is False
    assert response["status"] == {"status": "Failure", "message": message, "code": 400}


def test_a_request_of_very_many_values_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"a": [' + b"[]," * 100_001 + b"1]}"
    monkeypatch.setattr(json, "loads", lambda text: pytest.fail("parsed"))
    decision = review(body, DEFAULTS, unlabelled=False)
    assert (decision.status, decision.reason) == (400, "the request has more than 100000 values")


def test_a_request_that_was_not_read() -> None:
    decision = unread(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too long")
    assert (decision.status, decision.reason) == (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too long")
    assert json.loads(decision.body)["response"]["allowed"] is False


def test_the_log_line_has_no_foreign_signs() -> None:
    decision = review(review_of(pod(generateName="\ud800\n\x1b"), namespace="shöp"), DEFAULTS, unlabelled=False)
    assert decision.outcome == "injected"
    assert decision.pod == "sh\\xf6p/\\ud800\\n\\x1b"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PLACES = [
    (),
    ("uid",),
    ("kind",),
    ("object",),
    ("object", "metadata"),
    ("object", "metadata", "labels"),
    ("object", "metadata", "annotations"),
    ("object", "spec"),
    ("object", "spec", "containers"),
    ("object", "spec", "initContainers"),
    ("object", "spec", "volumes"),
    ("object", "spec", "terminationGracePeriodSeconds"),
]


@given(st.sampled_from(PLACES), VALUES)
def test_whatever_is_in_the_request_there_is_a_response(place: tuple[str, ...], value: Any) -> None:
    whole = json.loads(review_of(pod()))
    target = whole
    for part in ("request", *place)[:-1]:
        target = target[part]
    target[("request", *place)[-1]] = value
    decision = review(json.dumps(whole).encode(), DEFAULTS, unlabelled=True)
    assert isinstance(json.loads(decision.body)["response"]["allowed"], bool)


@given(st.binary(max_size=64))
def test_any_bytes_get_a_response(body: bytes) -> None:
    assert json.loads(review(body, DEFAULTS, unlabelled=True).body)["response"]["allowed"] is False
