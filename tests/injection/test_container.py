"""The injected container is that of the example of a sidecar, which docs/deploy.md explains."""

from pathlib import Path
from typing import Any

from kproxy.injection.container import container, volumes
from kproxy.injection.wishes import Sidecar
from tests.support.manifests import documents, only

EXAMPLE = Path(__file__).parents[2] / "deploy" / "kubernetes" / "sidecar.yaml"
SIDECAR = Sidecar("kproxy:0.1.0", "kafka:9092", config_map="c", secret="s")


def example() -> dict[str, Any]:
    pod = only(documents(EXAMPLE.read_text(encoding="utf-8")), "Deployment")["spec"]["template"]["spec"]
    [found] = pod["initContainers"]
    return dict(found)


def test_it_is_the_container_of_the_example() -> None:
    made, shown = container(SIDECAR), example()
    same = ("name", "restartPolicy", "image", "args", "resources")
    assert {key: made[key] for key in same} == {key: shown[key] for key in same}
    assert shown["securityContext"].items() <= made["securityContext"].items()
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        # The port has a name of its own, because the application may have one called http.
        assert made[probe] | {"httpGet": None} == shown[probe] | {"httpGet": None}
        assert made[probe]["httpGet"]["path"] == shown[probe]["httpGet"]["path"]
    assert {entry["name"] for entry in shown["env"]} <= {entry["name"] for entry in made["env"]}


def test_every_volume_is_mounted() -> None:
    mounted = {mount["name"] for mount in container(SIDECAR)["volumeMounts"]}
    assert mounted == {volume["name"] for volume in volumes(SIDECAR)}
