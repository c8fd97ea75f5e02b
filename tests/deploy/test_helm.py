"""The chart, with Helm's own code: linted, rendered in both modes, and what Kubernetes and kproxy make of it."""

import re
import shutil
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from kproxy import __version__
from kproxy.config import Config, options
from tests.support.charts import BROKERS, CHART, render
from tests.support.manifests import (
    Manifest,
    assert_closed,
    assert_commands_find_kproxy,
    configuration,
    kproxy_containers,
    only,
    validate,
)

STRIMZI = CHART.parents[1] / "strimzi"
EVERYTHING: dict[str, Any] = BROKERS | {
    "config": {"transactions.home": "kproxy", "deliver.codecs": {"old-*": {"lz4": "gzip"}}},
    "image": {"pullSecrets": ["registry"]},
    "gateway": {"replicas": 2, "port": 9092, "brokerPorts": 5, "service": {"annotations": {"a": "b"}}},
    "tls": {"secretName": "gateway-tls", "clientAuth": "required"},
    "upstreamTls": {"enabled": True, "caSecretName": "kafka-ca", "clientSecretName": "kafka-client"},
    "secretMounts": [{"name": "token", "secretName": "control-token", "mountPath": "/run/secrets/token"}],
    "env": [{"name": "KPROXY_LOG_LEVEL", "value": "debug"}],
    "envFrom": [{"secretRef": {"name": "more"}}],
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "networkPolicy": {
        "enabled": True,
        "clients": [{"namespaceSelector": {"matchLabels": {"kafka": "client"}}}],
        "monitoring": [{"namespaceSelector": {"matchLabels": {"team": "watch"}}}],
        "extraEgress": [{"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}], "ports": [{"protocol": "TCP", "port": 4318}]}],
    },
    "serviceAccount": {"annotations": {"a": "b"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}


def _environment(container: Manifest, pod: str) -> dict[str, str]:
    """What Kubernetes makes of a container's ``env`` for a pod of a name; only options."""
    fields = {"metadata.name": pod, "metadata.labels['apps.kubernetes.io/pod-index']": pod.rpartition("-")[2]}
    values: dict[str, str] = {}
    for entry in container["env"]:
        text = entry["value"] if "value" in entry else fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        values[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], text)
    return {name: text for name, text in values.items() if name != "KPROXY_CONFIG"}


def test_helm_finds_no_fault() -> None:
    report = helm_python.lint(CHART, BROKERS, strict=True)
    assert [message for message in report["messages"] if message["severity"] > 1] == []
    assert report["errors"] == []


@pytest.mark.parametrize("values", [BROKERS, EVERYTHING], ids=["defaults", "everything"])
def test_kubernetes_takes_the_gateway(values: dict[str, Any]) -> None:
    manifests = render(values)
    assert {"StatefulSet", "Service", "ConfigMap", "PodDisruptionBudget"} <= {found["kind"] for found in manifests}
    for manifest in manifests:
        validate(manifest)
    assert_closed(only(manifests, "StatefulSet")["spec"]["template"]["spec"])


def test_each_pod_of_a_gateway_has_its_own_name_and_addresses() -> None:
    manifests = render(BROKERS)
    stateful = only(manifests, "StatefulSet")["spec"]
    [kproxy] = kproxy_containers(stateful["template"]["spec"])
    configs = [configuration(manifests, _environment(kproxy, f"edge-kproxy-{number}")) for number in range(3)]
    assert [config.instance_id for config in configs] == ["edge-kproxy-0", "edge-kproxy-1", "edge-kproxy-2"]
    assert [str(config.advertised_address) for config in configs] == [
        f"edge-kproxy-{number}.edge-kproxy-pods.kafka.svc:9092" for number in range(3)
    ]
    assert configs[0].broker_port_range == range(9093, 9113)
    assert stateful["serviceName"] == "edge-kproxy-pods"
    headless = [found for found in manifests if found["kind"] == "Service" and found["spec"].get("clusterIP") == "None"]
    assert [found["metadata"]["name"] for found in headless] == ["edge-kproxy-pods"]


@pytest.mark.parametrize(("kind", "policy"), [("ClusterIP", None), ("LoadBalancer", "Local")])
def test_a_client_stays_with_an_instance(kind: str, policy: str | None) -> None:
    manifests = render(BROKERS | {"gateway": {"service": {"type": kind}}})
    [service] = [found for found in manifests if found["kind"] == "Service" and "type" in found["spec"]]
    validate(service)
    assert service["spec"]["sessionAffinity"] == "ClientIP"
    assert service["spec"].get("externalTrafficPolicy") == policy


PER_POD = {"enabled": True, "host": "kproxy-{index}.example", "annotations": {"dns": "kproxy-{index}.example"}}


def test_each_pod_has_a_load_balancer() -> None:
    service = {"loadBalancerSourceRanges": ["10.0.0.0/8"]}
    manifests = render(
        BROKERS | {"gateway": {"replicas": 2, "brokerPorts": 3, "service": service, "perPodService": PER_POD}}
    )
    services = {found["metadata"]["name"]: found for found in manifests if found["kind"] == "Service"}
    assert services.keys() == {"edge-kproxy", "edge-kproxy-pods", "edge-kproxy-0", "edge-kproxy-1"}
    validate(services["edge-kproxy-1"])
    assert services["edge-kproxy-1"]["metadata"]["annotations"] == {"dns": "kproxy-1.example"}
    spec = services["edge-kproxy-1"]["spec"]
    assert spec["type"] == "LoadBalancer"
    assert spec["externalTrafficPolicy"] == "Local"
    assert spec["loadBalancerSourceRanges"] == ["10.0.0.0/8"]
    assert spec["selector"]["statefulset.kubernetes.io/pod-name"] == "edge-kproxy-1"
    assert spec["publishNotReadyAddresses"] is True
    assert [(port["port"], port["targetPort"]) for port in spec["ports"]] == [
        (port, port) for port in range(9092, 9096)
    ]
    [kproxy] = kproxy_containers(only(manifests, "StatefulSet")["spec"]["template"]["spec"])
    config = configuration(manifests, _environment(kproxy, "edge-kproxy-1"))
    assert str(config.advertised_address) == "kproxy-1.example:9092"
    assert config.broker_port_range == range(9093, 9096)
    # A ClusterIP has no load balancer.
    assert "loadBalancerSourceRanges" not in services["edge-kproxy"]["spec"]


def test_a_load_balancer_admits_the_source_ranges() -> None:
    service = {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8"]}
    [found] = [each for each in render(BROKERS | {"gateway": {"service": service}}) if each["kind"] == "Service"][:1]
    validate(found)
    assert found["spec"]["loadBalancerSourceRanges"] == ["10.0.0.0/8"]


@pytest.mark.parametrize(
    ("gateway", "message"),
    [
        ({"perPodService": {"enabled": True}}, r"perPodService\.host is empty"),
        ({"perPodService": PER_POD, "brokerHostPattern": "b-{id}.example"}, r"perPodService and brokerHostPattern"),
        ({"perPodService": PER_POD | {"host": "one.example"}}, "perPodService/host"),
    ],
)
def test_load_balancers_that_would_not_work_are_refused(gateway: dict[str, Any], message: str) -> None:
    with pytest.raises(helm_python.HelmError, match=message):
        render(BROKERS | {"gateway": gateway, "tls": {"secretName": "t"}})


def test_a_pod_takes_what_is_added() -> None:
    added = {
        "extraVolumes": [{"name": "plugins", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "plugins", "mountPath": "/plugins"}],
        "priorityClassName": "high",
        "gateway": {
            "extraContainers": [{"name": "agent", "image": "agent:1"}],
            "updateStrategy": {"type": "OnDelete"},
        },
    }
    stateful = only(render(BROKERS | added), "StatefulSet")
    validate(stateful)
    assert stateful["spec"]["updateStrategy"] == {"type": "OnDelete"}
    pod = stateful["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == "high"
    assert [container["name"] for container in pod["containers"]] == ["kproxy", "agent"]
    assert added["extraVolumes"][0] in pod["volumes"]
    assert added["extraVolumeMounts"][0] in pod["containers"][0]["volumeMounts"]


def test_clients_find_a_pod_that_is_not_ready() -> None:
    """No gateway is ready in a Kafka outage; its clients know no other name than the pod's."""
    services = {found["metadata"]["name"]: found["spec"] for found in render(BROKERS) if found["kind"] == "Service"}
    assert services["edge-kproxy-pods"]["publishNotReadyAddresses"] is True
    # A client that bootstraps is better served by an instance that reaches a broker.
    assert "publishNotReadyAddresses" not in services["edge-kproxy"]


def test_commands_find_the_control_socket_in_the_pod() -> None:
    manifests = render(BROKERS)
    pod = only(manifests, "StatefulSet")["spec"]["template"]["spec"]
    assert_commands_find_kproxy(configuration(manifests, _environment(pod["containers"][0], "edge-kproxy-0")), pod)


def test_the_control_socket_can_be_off() -> None:
    manifests = render(BROKERS | {"config": {"control.socket": "off"}})
    pod = only(manifests, "StatefulSet")["spec"]["template"]["spec"]
    assert configuration(manifests, _environment(pod["containers"][0], "edge-kproxy-0")).control_socket is None


def test_a_pod_has_time_to_end() -> None:
    pod = only(render(BROKERS | {"shutdownGraceMs": 25_500}), "StatefulSet")["spec"]["template"]["spec"]
    pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= pause + 26


def test_kproxy_takes_all_that_the_chart_works_out() -> None:
    manifests = render(EVERYTHING)
    pod = only(manifests, "StatefulSet")["spec"]["template"]["spec"]
    [kproxy] = kproxy_containers(pod)
    config = configuration(manifests, _environment(kproxy, "edge-kproxy-0"))
    assert config.ssl_client_auth == "required"
    assert config.upstream_security_protocol == "ssl"
    assert config.log_level == "debug"
    mounted = {mount["mountPath"] for mount in kproxy["volumeMounts"]}
    named = (config.ssl_certificate_location, config.ssl_ca_location, config.upstream_ssl_ca_location)
    assert all(str(path.parent) in mounted for path in named if path)
    assert None not in named
    assert {mount["name"] for mount in kproxy["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_one_port_for_all_brokers() -> None:
    values = BROKERS | {"gateway": {"brokerHostPattern": "broker-{id}.kafka.example"}}
    with pytest.raises(helm_python.HelmRenderError, match=r"give tls\.secretName"):
        render(values)
    manifests = render(
        values | {"tls": {"secretName": "t"}, "networkPolicy": {"enabled": True, "clients": [{"podSelector": {}}]}}
    )
    [kproxy] = kproxy_containers(only(manifests, "StatefulSet")["spec"]["template"]["spec"])
    config = configuration(manifests, _environment(kproxy, "edge-kproxy-0"))
    assert config.broker_host_pattern == "broker-{id}.kafka.example"
    [ports] = (only(manifests, "NetworkPolicy")["spec"]["ingress"][0]["ports"],)
    assert ports == [{"protocol": "TCP", "port": 9092, "endPort": 9092}]


def _policy(values: dict[str, Any]) -> Manifest:
    manifests = render(BROKERS | values)
    policy = only(manifests, "NetworkPolicy")
    validate(policy)
    return policy["spec"]


CLIENTS = [{"namespaceSelector": {"matchLabels": {"kafka": "client"}}}]


def test_the_installation_of_the_docs_lets_clients_and_prometheus_in() -> None:
    page = (CHART.parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```yaml\n(# edge\.yaml\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    values = yaml.safe_load(block)
    manifests = render(values)
    assert only(manifests, "PodMonitor")
    clients, _, monitoring = only(manifests, "NetworkPolicy")["spec"]["ingress"]
    assert clients == {
        "from": values["networkPolicy"]["clients"],
        "ports": [{"protocol": "TCP", "port": 9092, "endPort": 9112}],
    }
    assert monitoring == {
        "from": values["networkPolicy"]["monitoring"],
        "ports": [{"protocol": "TCP", "port": 19644}],
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"networkPolicy": {}}, r"networkPolicy\.clients is empty"),
        ({"podMonitor": {"enabled": True}}, r"networkPolicy\.monitoring is empty"),
        ({"bootstrapServers": ["b-1.msk:9098"]}, r"b-1\.msk:9098 has a port that is not in networkPolicy\.brokerPorts"),
        ({"config": {"otel.exporter.otlp.endpoint": "http://otel:4318"}}, r"otel\.exporter\.otlp\.endpoint"),
        ({"config": {"sasl.oauthbearer.jwks.endpoint.url": "https://idp/keys"}}, r"networkPolicy\.extraEgress"),
        ({"config": {"upstream.sasl.oauthbearer.token.endpoint.url": "https://idp/t"}}, r"networkPolicy\.extraEgress"),
    ],
)
def test_a_network_policy_that_shuts_out_somebody_is_refused(values: dict[str, Any], message: str) -> None:
    policy = {"enabled": True, "clients": CLIENTS} if "networkPolicy" not in values else {"enabled": True}
    with pytest.raises(helm_python.HelmRenderError, match=message):
        render(BROKERS | values | {"networkPolicy": policy})
    assert render(BROKERS | values | {"networkPolicy": {"enabled": False}})


def test_keys_in_a_file_need_no_way_out() -> None:
    values = {"config": {"sasl.oauthbearer.jwks.endpoint.url": "file:///etc/kproxy/keys.json"}}
    assert len(_policy(values | {"networkPolicy": {"enabled": True, "clients": CLIENTS}})["egress"]) == 2


def test_a_network_policy_lets_out_what_is_listed() -> None:
    extra = EVERYTHING["networkPolicy"]["extraEgress"]
    assert _policy(EVERYTHING)["egress"][2:] == extra


def test_files_stand_beside_the_configuration() -> None:
    rules = (CHART.parents[1] / "acl.yaml").read_text(encoding="utf-8")
    values = {"files": {"acl.yaml": rules}, "config": {"acl.file": "/etc/kproxy/acl.yaml"}}
    manifests = render(BROKERS | values)
    assert only(manifests, "ConfigMap")["data"]["acl.yaml"] == rules
    [kproxy] = kproxy_containers(only(manifests, "StatefulSet")["spec"]["template"]["spec"])
    assert {"name": "kproxy-config", "mountPath": "/etc/kproxy", "readOnly": True} in kproxy["volumeMounts"]
    # Files are read again when they change: a change of theirs alone restarts nothing.
    changed = render(BROKERS | values | {"files": {"acl.yaml": f"{rules}\n"}})
    assert only(changed, "StatefulSet") == only(manifests, "StatefulSet")


def test_helm_test_asks_every_instance() -> None:
    manifests = render(EVERYTHING)
    test = only(manifests, "Pod")
    assert test["metadata"]["annotations"]["helm.sh/hook"] == "test"
    asked = [container["args"] for container in test["spec"]["containers"]]
    assert asked == [
        ["health", "--ready", "--http", f"edge-kproxy-{number}.edge-kproxy-pods:19644"] for number in range(2)
    ]
    let_in = only(manifests, "NetworkPolicy")["spec"]["ingress"][1]["from"][0]["podSelector"]["matchLabels"]
    assert let_in.items() <= test["metadata"]["labels"].items()


def test_the_notes_say_where_clients_go() -> None:
    with helm_python.Chart.load(CHART) as chart:
        notes = chart.render(EVERYTHING, name="edge", namespace="kafka")["kproxy/templates/NOTES.txt"]
    assert "    edge-kproxy.kafka.svc:9092\n" in notes
    assert "The certificate in gateway-tls must bear this name and\n*.edge-kproxy-pods.kafka.svc." in notes
    assert "outside the cluster" not in notes


def test_the_notes_say_where_clients_outside_go() -> None:
    gateway: dict[str, Any] = {"replicas": 2, "perPodService": PER_POD}
    tls = {"tls": {"secretName": "t"}}
    with helm_python.Chart.load(CHART) as chart:
        notes = chart.render(BROKERS | tls | {"gateway": gateway}, name="edge")["kproxy/templates/NOTES.txt"]
        assert "must bear this name and\nkproxy-{index}.example, with the number of each pod." in notes
        assert "    kproxy-0.example:9092,kproxy-1.example:9092\n" in notes
        gateway = {"service": {"type": "LoadBalancer"}}
        notes = chart.render(BROKERS | {"gateway": gateway}, name="edge")["kproxy/templates/NOTES.txt"]
    assert "Clients outside the cluster can bootstrap but not continue" in notes


def test_a_cluster_of_strimzi() -> None:
    values = yaml.safe_load((STRIMZI / "values.yaml").read_text(encoding="utf-8"))
    user = yaml.safe_load((STRIMZI / "kafka-user.yaml").read_text(encoding="utf-8"))
    assert values["upstreamTls"]["clientSecretName"] == user["metadata"]["name"]
    manifests = render(values)
    for manifest in manifests:
        validate(manifest)
    [kproxy] = kproxy_containers(only(manifests, "StatefulSet")["spec"]["template"]["spec"])
    config = configuration(manifests, _environment(kproxy, "edge-kproxy-0"))
    mounted = {mount["name"]: Path(mount["mountPath"]) for mount in kproxy["volumeMounts"]}
    assert config.upstream_ssl_ca_location == mounted["kproxy-upstream-ca"] / "ca.crt"
    assert config.upstream_ssl_certificate_location == mounted["kproxy-upstream-tls"] / "user.crt"
    assert config.upstream_ssl_key_location == mounted["kproxy-upstream-tls"] / "user.key"


def test_the_user_at_strimzi_has_the_rights_that_the_docs_name() -> None:
    user = yaml.safe_load((STRIMZI / "kafka-user.yaml").read_text(encoding="utf-8"))
    rights = {
        (rule["resource"]["type"], rule["resource"].get("name", "")): set(rule["operations"])
        for rule in user["spec"]["authorization"]["acls"]
    }
    assert {"ClusterAction", "IdempotentWrite", "Describe"} <= rights["cluster", ""]
    own = {"Create", "Describe", "DescribeConfigs", "Read", "Write"}
    assert own <= rights["topic", "__kproxy_"]
    assert {"Describe", "Read", "Write"} <= rights["topic", "*"]
    assert "Read" in rights["group", "*"]


def test_a_cluster_may_choose_the_user() -> None:
    """OpenShift's restricted-v2 gives each namespace users of its own, and refuses all others."""
    values = BROKERS | {
        "containerSecurityContext": {"runAsUser": None, "runAsGroup": None},
        "podSecurityContext": {"fsGroup": 1000},
    }
    manifests = render(values)
    pod = only(manifests, "StatefulSet")["spec"]["template"]["spec"]
    [kproxy] = kproxy_containers(pod)
    assert not {"runAsUser", "runAsGroup"} & kproxy["securityContext"].keys()
    assert kproxy["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"] == {"fsGroup": 1000}
    for manifest in manifests:
        validate(manifest)


def test_an_image_may_be_named_by_its_digest() -> None:
    digest = f"sha256:{'a' * 64}"
    pod = only(render(BROKERS | {"image": {"digest": digest}}), "StatefulSet")["spec"]["template"]["spec"]
    [kproxy] = kproxy_containers(pod)
    assert kproxy["image"] == f"kproxy:{__version__}@{digest}"


def test_readiness_need_not_follow_kafka() -> None:
    for readiness, path in (("kafka", "/readyz"), ("kproxy", "/healthz")):
        pod = only(render(BROKERS | {"readiness": readiness}), "StatefulSet")["spec"]["template"]["spec"]
        [kproxy] = kproxy_containers(pod)
        assert kproxy["readinessProbe"]["httpGet"]["path"] == path


def test_pods_that_are_not_ready_hold_up_no_drain_of_a_node() -> None:
    budget = only(render(BROKERS), "PodDisruptionBudget")
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_clusters_without_ipv4_are_served() -> None:
    manifests = render(BROKERS)
    pod = only(manifests, "StatefulSet")["spec"]["template"]["spec"]
    [kproxy] = kproxy_containers(pod)
    config = configuration(manifests, _environment(kproxy, "edge-kproxy-0"))
    assert (config.listen.host, config.http and config.http.host) == ("", "")


def test_what_is_given_as_config_beats_the_chart() -> None:
    manifests = render(BROKERS | {"config": {"shutdown.grace.ms": 3000, "log.level": "error"}})
    file = yaml.safe_load(only(manifests, "ConfigMap")["data"]["kproxy.yaml"])
    assert (file["shutdown.grace.ms"], file["log.level"], file["log.format"]) == (3000, "error", "json")


def test_the_schema_allows_every_default() -> None:
    given = [entry for entry in options(Config).values() if not (entry.default_is_text or entry.required)]
    texts = {entry.name: '"*"' if entry.default_text == "*" else entry.default_text for entry in given}
    defaults = {name: yaml.safe_load(text or '""') for name, text in texts.items()}
    assert render(BROKERS | {"config": defaults})


def test_a_large_number_stays_whole() -> None:
    """Helm reads numbers as floats; kproxy would refuse 1.34217728e+08."""
    manifests = render(BROKERS | {"config": {"buffer.memory": 2_134_217_728, "log.level": "debug"}})
    assert configuration(manifests, {"KPROXY_INSTANCE_ID": "a"}).buffer_memory == 2_134_217_728


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "bootstrapServers is empty"),
        ({"bootstrapServers": ["kafka"]}, "does not match pattern"),
        (BROKERS | {"replicas": 2}, "replicas"),
        (BROKERS | {"gateway": {"replicas": 0}}, "minimum"),
        (BROKERS | {"config": {"Log Level": "debug"}}, "Log Level"),
        (BROKERS | {"config": {"log.levle": "debug"}}, "log.levle. not allowed"),
        (BROKERS | {"config": {"log": {"level": "debug"}}}, "additional properties .log. not allowed"),
        (BROKERS | {"config": {"buffer.memory": 1}}, "buffer.memory"),
        (BROKERS | {"tls": {"clientAuth": "yes"}}, "clientAuth"),
        (BROKERS | {"files": {"kproxy.yaml": ""}}, "kproxy.yaml"),
    ],
)
def test_wrong_values_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(helm_python.HelmError, match=message):
        render(values)


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """A chart of somebody else, whose Deployment takes the sidecar in."""
    chart = tmp_path / "shipper"
    (chart / "templates").mkdir(parents=True)
    shutil.copytree(CHART, chart / "charts" / "kproxy")
    dependencies = [{"name": "kproxy", "version": "0.1.0", "repository": ""}]
    about = {"apiVersion": "v2", "name": "shipper", "version": "1.0.0", "dependencies": dependencies}
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about))
    (chart / "templates" / "deployment.yaml").write_text(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shipper}\nspec:\n"
        "  selector: {matchLabels: {app: shipper}}\n  template:\n    metadata: {labels: {app: shipper}}\n    spec:\n"
        "      automountServiceAccountToken: false\n"
        '      initContainers: {{- include "kproxy.sidecar" .Subcharts.kproxy | nindent 8 }}\n'
        '      volumes: {{- include "kproxy.sidecar.volumes" .Subcharts.kproxy | nindent 8 }}\n'
        "      containers: [{name: shipper, image: 'shipper:1'}]\n"
    )
    return chart


def test_a_sidecar_in_another_chart(application: Path) -> None:
    sidecar = BROKERS | {"gateway": {"enabled": False}, "secretMounts": EVERYTHING["secretMounts"]}
    manifests = render({"kproxy": sidecar}, application)
    assert {manifest["kind"] for manifest in manifests} == {"Deployment", "ConfigMap"}
    for manifest in manifests:
        validate(manifest)
    pod = only(manifests, "Deployment")["spec"]["template"]["spec"]
    assert_closed(pod)
    [kproxy] = pod["initContainers"]
    assert kproxy["restartPolicy"] == "Always"
    config = configuration(manifests, _environment(kproxy, "shipper-7d9f"))
    assert str(config.listen) == "127.0.0.1:19092"
    assert config.instance_id == "shipper-7d9f"
    assert_commands_find_kproxy(config, pod)
    assert {mount["name"] for mount in kproxy["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_a_gateway_is_no_sidecar(application: Path) -> None:
    with pytest.raises(helm_python.HelmRenderError, match=r"set gateway\.enabled to false"):
        render({"kproxy": BROKERS}, application)
