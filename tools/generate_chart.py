"""Writes what the chart has of the rest of the repository; with ``--check`` only tells whether it is up to date.

These are kproxy's options, as the keys of ``config`` in the schema of the values, and copies of the alerting rules and
of the dashboard: Helm reads no file outside of the chart.
"""

import json
import sys
from pathlib import Path
from typing import Final

from tools import generate_dashboard
from tools.chart_values import read_values, render_table
from tools.generate_samples import option_schemas
from tools.one_page import write_or_check

DEPLOY: Final = Path(__file__).parent.parent / "deploy"
CHART: Final = DEPLOY / "helm" / "kproxy"
RULES: Final = DEPLOY / "prometheus" / "kproxy.rules.yml"
_README: Final = """\
# kproxy's chart

<!-- Made by make generate from values.yaml; edit that. -->
A gateway of several instances, or (as a dependency of your chart) a sidecar: see docs/deploy.md in the repository.

    helm install edge deploy/helm/kproxy --namespace kafka --set 'bootstrapServers={kafka-bootstrap:9092}'

Where there is no default, the value is empty. A schema checks every value at installation.
"""
SCHEMA: Final = CHART / "values.schema.json"


def render_schema(text: str) -> str:
    """Return the schema in ``text`` with the options of this kproxy, and no others, as the keys of ``config``."""
    schema = json.loads(text)
    schema["properties"]["config"] = {
        "description": "Options of docs/configuration.md by their dotted names. Made by make generate.",
        "type": "object",
        "additionalProperties": False,
        "properties": option_schemas(),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def render_readme() -> str:
    """Return the chart's page: how to install it, and a table of its values."""
    table = render_table(read_values((CHART / "values.yaml").read_text(encoding="utf-8")))
    return f"{_README}\n{table}"


def pages() -> dict[Path, str]:
    """Return the text of each file that this tool makes."""
    return {
        CHART / "README.md": render_readme(),
        SCHEMA: render_schema(SCHEMA.read_text(encoding="utf-8")),
        CHART / "files" / RULES.name: RULES.read_text(encoding="utf-8"),
        CHART / "files" / generate_dashboard.PAGE.name: generate_dashboard.render(),
    }


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a difference."""
    return max(write_or_check(page, text, arguments) for page, text in pages().items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
