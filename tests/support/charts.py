"""The chart, rendered with Helm's own code."""

from pathlib import Path
from typing import Any, Final

import helm_python

from tests.support.manifests import Manifest, documents

CHART: Final = Path(__file__).parents[2] / "deploy" / "helm" / "kproxy"
BROKERS: Final[dict[str, Any]] = {"bootstrapServers": ["kafka-1:9092", "kafka-2:9092"]}


def render(values: dict[str, Any], chart: Path = CHART) -> list[Manifest]:
    """All manifests of a release called edge in the namespace kafka; HelmError if Helm refuses the values."""
    with helm_python.Chart.load(chart) as loaded:
        texts = loaded.render(values, name="edge", namespace="kafka")
    return [document for name, text in texts.items() if name.endswith(".yaml") for document in documents(text)]
