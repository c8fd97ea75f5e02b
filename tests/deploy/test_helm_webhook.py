"""The webhook in the chart: what Kubernetes takes, and that its parts fit one another and ``kproxy webhook``."""

from typing import Any

import helm_python
import pytest

from kproxy.cli.webhook_command import webhook
from kproxy.injection.admission import INJECTED_LABEL, LABEL
from kproxy.injection.container import container
from kproxy.injection.webhook import PATHS
from kproxy.injection.wishes import Sidecar
from tests.support.charts import BROKERS, CHART, render
from tests.support.manifests import Manifest, assert_closed, only, validate

GIVEN: dict[str, Any] = {"enabled": True, "tls": {"secretName": "webhook-tls", "caBundle": "TFMwdA=="}}
MANAGED = {"enabled": True, "certManager": {"enabled": True}}
#: A release that is only the webhook.
ALONE: dict[str, Any] = {"gateway": {"enabled": False}, "webhook": GIVEN}


def named(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    return {found["metadata"]["name"]: found for found in manifests if found["kind"] == kind}


def deployment(values: dict[str, Any]) -> Manifest:
    return dict(only(render(values), "Deployment")["spec"]["template"]["spec"])


def flags(values: dict[str, Any]) -> dict[str, Any]:
    """What ``kproxy webhook`` makes of the arguments of its container."""
    [kproxy] = deployment(values)["containers"]
    command, *args = kproxy["args"]
    assert command == "webhook"
    return dict(webhook.make_context("webhook", args).params)


@pytest.mark.parametrize(
    "values",
    [ALONE, BROKERS | {"webhook": MANAGED, "podMonitor": {"enabled": True}, "image": {"pullSecrets": ["registry"]}}],
    ids=["alone", "beside a gateway"],
)
def test_kubernetes_takes_it(values: dict[str, Any]) -> None:
    manifests = render(values)
    assert {"MutatingWebhookConfiguration", "Deployment", "Service"} <= {found["kind"] for found in manifests}
    for manifest in manifests:
        validate(manifest)
    assert_closed(only(manifests, "Deployment")["spec"]["template"]["spec"])


def test_it_is_off_unless_asked_for() -> None:
    assert not {"MutatingWebhookConfiguration", "Deployment"} & {found["kind"] for found in render(BROKERS)}


def test_alone_it_needs_no_brokers_and_no_configuration() -> None:
    kinds = {found["kind"] for found in render(ALONE)}
    assert kinds == {"MutatingWebhookConfiguration", "Service", "Deployment", "PodDisruptionBudget"}
    assert flags(ALONE)["bootstrap_servers"] is None


def test_sidecars_are_as_the_chart_says() -> None:
    resources = {"requests": {"cpu": 2, "memory": "1Gi"}, "limits": {"cpu": "2500m", "memory": "1Gi"}}
    image = {"repository": "registry.example:5000/kproxy", "tag": "1.2"}
    params = flags(ALONE | BROKERS | {"image": image, "resources": resources})
    assert params["image"] == "registry.example:5000/kproxy:1.2"
    assert params["bootstrap_servers"] == "kafka-1:9092,kafka-2:9092"
    assert (params["readiness"], params["run_as_user"]) == ("kafka", "65532")
    amounts = {name: params[name] for name in ("cpu_request", "cpu_limit", "memory_request", "memory_limit")}
    assert amounts == {"cpu_request": "2", "cpu_limit": "2500m", "memory_request": "1Gi", "memory_limit": "1Gi"}


def test_sidecars_have_the_digest_the_user_and_the_readiness_of_the_chart() -> None:
    digest = f"sha256:{'0' * 64}"
    user = {"runAsUser": None, "runAsGroup": None}
    values = ALONE | {"image": {"digest": digest}, "containerSecurityContext": user, "readiness": "kproxy"}
    params = flags(values)
    assert params["image"].endswith(f"@{digest}")
    assert (params["readiness"], params["run_as_user"]) == ("kproxy", "any")


def test_the_certificate_is_where_the_command_reads_it() -> None:
    pod, params = deployment(ALONE), flags(ALONE)
    [mount] = pod["containers"][0]["volumeMounts"]
    assert {str(params["certificate"].parent), str(params["key"].parent)} == {mount["mountPath"]}
    assert pod["volumes"] == [{"name": mount["name"], "secret": {"secretName": "webhook-tls", "defaultMode": 0o444}}]


def test_the_api_server_finds_the_service_and_the_service_the_pods() -> None:
    manifests = render(ALONE)
    service = only(manifests, "Service")
    [kproxy] = only(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in kproxy["ports"]}
    assert ports == {"https": flags(ALONE)["listen"].port, "http": flags(ALONE)["http"].port}
    assert service["spec"]["ports"][0]["targetPort"] == "https"
    labels = only(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    hooks = only(manifests, "MutatingWebhookConfiguration")["webhooks"]
    assert {hook["clientConfig"]["service"]["path"] for hook in hooks} == set(PATHS)
    for hook in hooks:
        reached = hook["clientConfig"]["service"]
        assert (reached["name"], reached["namespace"]) == (service["metadata"]["name"], "kafka")
        assert hook["clientConfig"]["caBundle"] == "TFMwdA=="
        assert hook["sideEffects"] == "None"  # else a dry run would fail


def test_its_own_pods_and_the_gateways_do_not_wait_for_it() -> None:
    manifests = render(BROKERS | {"webhook": GIVEN})
    assert only(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"][LABEL] == "false"
    gateway = only(manifests, "StatefulSet")["spec"]
    assert gateway["template"]["metadata"]["labels"][LABEL] == "false"
    service = named(manifests, "Service")["edge-kproxy"]["spec"]
    webhook_labels = only(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert not service["selector"].items() <= webhook_labels.items()


def test_selectors_and_failure_policy_are_values() -> None:
    anywhere = {"matchLabels": {"team": "shop"}}
    more = {"failurePolicy": "Ignore", "timeoutSeconds": 2, "namespaceSelector": anywhere}
    pods, namespaces = only(render(ALONE | {"webhook": GIVEN | more}), "MutatingWebhookConfiguration")["webhooks"]
    assert {(hook["failurePolicy"], hook["timeoutSeconds"]) for hook in (pods, namespaces)} == {("Ignore", 2)}
    assert pods["namespaceSelector"]["matchLabels"] == {"team": "shop"}
    assert {rule["key"] for rule in pods["objectSelector"]["matchExpressions"]} == {LABEL}
    assert namespaces["namespaceSelector"] == {"matchLabels": {LABEL: "true"}}
    assert namespaces["objectSelector"]["matchExpressions"] == [{"key": LABEL, "operator": "DoesNotExist"}]


def test_cert_manager_makes_the_certificate_of_the_service() -> None:
    manifests = render(ALONE | {"webhook": MANAGED})
    certificates, issuers = named(manifests, "Certificate"), named(manifests, "Issuer")
    leaf, authority = certificates["edge-kproxy-webhook"]["spec"], certificates["edge-kproxy-webhook-ca"]["spec"]
    assert leaf["dnsNames"] == ["edge-kproxy-webhook.kafka.svc"]
    assert issuers[leaf["issuerRef"]["name"]]["spec"] == {"ca": {"secretName": authority["secretName"]}}
    assert issuers[authority["issuerRef"]["name"]]["spec"] == {"selfSigned": {}}
    assert authority["isCA"] is True
    [volume] = only(manifests, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert volume["secret"]["secretName"] == leaf["secretName"]
    hooks = only(manifests, "MutatingWebhookConfiguration")
    assert hooks["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "kafka/edge-kproxy-webhook"}
    assert all("caBundle" not in hook["clientConfig"] for hook in hooks["webhooks"])


def test_an_issuer_of_the_cluster() -> None:
    issuer = {"kind": "ClusterIssuer", "name": "internal"}
    manifests = render(ALONE | {"webhook": MANAGED | {"certManager": {"enabled": True, "issuerRef": issuer}}})
    assert only(manifests, "Certificate")["spec"]["issuerRef"] == issuer
    assert not named(manifests, "Issuer")


def test_prometheus_finds_what_was_injected() -> None:
    manifests = render(ALONE | {"podMonitor": {"enabled": True}})
    monitors = named(manifests, "PodMonitor")
    monitor, own = [monitors[f"edge-kproxy-{name}"]["spec"] for name in ("injected", "webhook")]
    assert monitor["selector"] == {"matchLabels": {INJECTED_LABEL: "true"}}
    assert monitor["namespaceSelector"] == {"any": True}
    [port] = container(Sidecar("kproxy:1"))["ports"]
    assert monitor["podMetricsEndpoints"][0]["port"] == port["name"]
    pod = only(manifests, "Deployment")["spec"]["template"]
    assert own["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert own["podMetricsEndpoints"][0]["port"] in {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    both = render(BROKERS | {"webhook": GIVEN, "podMonitor": {"enabled": True}})
    assert named(both, "PodMonitor").keys() == {"edge-kproxy", "edge-kproxy-injected", "edge-kproxy-webhook"}


def test_a_network_policy_admits_the_api_server_and_prometheus_alone() -> None:
    api_server, prometheus = {"ipBlock": {"cidr": "192.0.2.10/32"}}, {"podSelector": {"matchLabels": {"app": "prom"}}}
    policy = {"networkPolicy": {"enabled": True, "apiServer": [api_server]}}
    manifests = render(ALONE | {"webhook": GIVEN | policy, "networkPolicy": {"monitoring": [prometheus]}})
    found = only(manifests, "NetworkPolicy")
    validate(found)
    pod = only(manifests, "Deployment")["spec"]["template"]
    ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
    assert found["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert found["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert found["spec"]["egress"] == []
    assert found["spec"]["ingress"] == [
        {"from": [api_server], "ports": [{"protocol": "TCP", "port": ports["https"]}]},
        {"from": [prometheus], "ports": [{"protocol": "TCP", "port": ports["http"]}]},
    ]


def test_the_api_server_may_have_to_show_a_certificate() -> None:
    assert flags(ALONE)["client_ca"] is None
    values = ALONE | {"webhook": GIVEN | {"tls": GIVEN["tls"] | {"clientCaSecretName": "apiserver-ca"}}}
    for manifest in render(values):
        validate(manifest)
    pod, path = deployment(values), flags(values)["client_ca"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    [volume] = [found for found in pod["volumes"] if found["secret"]["secretName"] == "apiserver-ca"]
    assert (mounts[volume["name"]], volume["secret"]["items"][0]["path"]) == (str(path.parent), path.name)
    # The kubelet has no such certificate.
    assert {pod["containers"][0][f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "liveness")} == {"http"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"webhook\.tls\.secretName is empty"),
        ({"tls": {"secretName": "t"}}, r"webhook\.tls\.caBundle is empty"),
        (MANAGED | {"tls": {"secretName": "t"}}, "are two certificates: give one"),
        (GIVEN | {"failurePolicy": "Open"}, "failurePolicy"),
        (GIVEN | {"timeoutSeconds": 31}, "timeoutSeconds"),
        (GIVEN | {"tls": {"secretName": "t", "caBundle": "-----BEGIN CERTIFICATE-----"}}, "caBundle"),
        (GIVEN | {"sidecar": {}}, "sidecar"),
        (GIVEN | {"networkPolicy": {"enabled": True}}, r"webhook\.networkPolicy\.apiServer is empty"),
    ],
)
def test_wrong_values_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(helm_python.HelmError, match=message):
        render(ALONE | {"webhook": {"enabled": True} | settings})


def test_the_notes_say_how_a_pod_asks_for_it() -> None:
    with helm_python.Chart.load(CHART) as chart:
        notes = chart.render(ALONE, name="edge", namespace="kafka")["kproxy/templates/NOTES.txt"]
    assert 'kproxy.io/inject: "true"' in notes
    assert "The sidecar's configuration" not in notes
