"""Bodies of requests to the webhook: reviews of pods."""

import base64
import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from kproxy.injection.admission import review
from kproxy.injection.wishes import Sidecar
from verification.fuzz.target import Bound, Target, expect

_DEFAULTS: Final = Sidecar("registry.example/kproxy:1", "broker:9092")


def check_review(data: bytes) -> None:
    """A byte that says whether pods without a label are wanted, then the body of a review."""
    decision = review(data[1:], _DEFAULTS, unlabelled=bool(data[:1] > b"\x7f"))
    answer = json.loads(decision.body)
    expect(decision.status in (HTTPStatus.OK, HTTPStatus.BAD_REQUEST), "another status")
    response = answer["response"]
    expect(response["allowed"] == (decision.outcome in ("left alone", "injected")), "another outcome")
    expect(decision.status != HTTPStatus.OK or bool(response["uid"]), "a response that Kubernetes does not accept")
    if "patch" in response:
        patch = json.loads(base64.b64decode(response["patch"]))
        expect(all(each["op"] == "add" for each in patch), "a patch that does more than add")


def _review_seeds() -> Iterator[bytes]:
    for labels in ({"kproxy.io/inject": "true"}, {"kproxy.io/inject": "maybe"}, {}):
        for notes in (
            {},
            {"kproxy.io/cpu-limit": "1.5", "kproxy.io/memory-request": "96Mi", "kproxy.io/listen": "127.0.0.1:9092"},
            {"kproxy.io/config-map": "kproxy", "kproxy.io/secret": "s", "kproxy.io/image": "r/k:1"},
            {"kproxy.io/bootstrap-servers": "a:1,[::1]:2", "kproxy.io/wrong": "x"},
        ):
            pod = {
                "metadata": {"labels": labels, "annotations": notes, "generateName": "p-"},
                "spec": {
                    "containers": [{"name": "app"}],
                    "volumes": [{"name": "data"}],
                    "terminationGracePeriodSeconds": 5,
                },
            }
            request = {"uid": "u", "kind": {"kind": "Pod"}, "operation": "CREATE", "namespace": "n", "object": pod}
            whole = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
            yield b"\0" + json.dumps(whole).encode()
            yield b"\xff" + json.dumps(whole).encode()


REVIEWS_TARGET: Final = Target(
    "reviews",
    check_review,
    _review_seeds,
    Bound(steps=20_000, steps_of_byte=100, memory=50_000, memory_of_byte=500),
    ("kproxy.injection.admission", "kproxy.injection.wishes", "kproxy.injection.container"),
    (
        *(
            b'"kproxy.io/',
            b'"inject"',
            b"memory-limit",
            b"memory-request",
            b"cpu-request",
            b"cpu-limit",
            b"null",
            b"true",
        ),
        *(b"NaN", b"-1e999", b"\\ud800", b"[[", b'{"', b'"hostNetwork":true', b'"initContainers":', b'"name":"kproxy"'),
    ),
)
