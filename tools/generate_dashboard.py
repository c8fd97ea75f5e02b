"""Writes deploy/grafana/kproxy.json, the dashboard; with ``--check`` only tells whether it is up to date."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.dashboard_panels import Panel
from tools.dashboard_rows import FIGURES, ROWS
from tools.one_page import write_or_check

PAGE = Path(__file__).parent.parent / "deploy" / "grafana" / "kproxy.json"

_SCHEMA_VERSION = 39
_COLUMNS = 24
_WIDTH, _HEIGHT, _FIGURE_HEIGHT = 8, 8, 4
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_INSTANCES = 'namespace=~"$namespace", job=~"$job", instance=~"$instance"'


def render() -> str:
    """The whole file."""
    dashboard = {
        "uid": "kproxy",
        "title": "kproxy",
        "description": "A Kafka proxy that gives idempotence and transactions to clients that have none.",
        "tags": ["kafka", "kproxy"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "annotations": {"list": [_starts()]},
        "templating": {"list": _variables()},
        "panels": list(_panels()),
    }
    return json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"


def _starts() -> dict[str, Any]:
    return {
        "name": "Starts",
        "datasource": _SOURCE,
        "enable": True,
        "iconColor": "orange",
        "expr": f"changes(process_start_time_seconds{{{_INSTANCES}}}[1m]) > 0",
        "titleFormat": "{{instance}} was started",
    }


def _variables() -> list[dict[str, Any]]:
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return [
        source,
        # Outside Kubernetes no series has the label; of all namespaces such series are shown, too.
        _variable("namespace", "Namespace", "kproxy_build_info", every=".*"),
        _variable("job", "Job", 'kproxy_build_info{namespace=~"$namespace"}'),
        _variable("instance", "Instance", 'kproxy_build_info{namespace=~"$namespace", job=~"$job"}'),
    ]


def _variable(name: str, label: str, metric: str, every: str = ".+") -> dict[str, Any]:
    query = f"label_values({metric}, {name})"
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": every,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> Iterator[dict[str, Any]]:
    number, width = 0, _COLUMNS // len(FIGURES)
    for number, figure in enumerate(FIGURES, 1):
        yield _panel(number, figure, {"x": (number - 1) * width, "y": 0, "w": width, "h": _FIGURE_HEIGHT})
    top = _FIGURE_HEIGHT
    for title, panels in ROWS.items():
        row = number = number + 1
        inner = []
        for place, panel in enumerate(panels):
            number += 1
            line, column = divmod(place * _WIDTH, _COLUMNS)
            inner.append(_panel(number, panel, {"x": column, "y": top + 1 + line * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}))
        yield {
            "id": row,
            "type": "row",
            "title": title,
            "collapsed": True,
            "gridPos": {"x": 0, "y": top, "w": _COLUMNS, "h": 1},
            "panels": inner,
        }
        top += 1 + -(-len(panels) * _WIDTH // _COLUMNS) * _HEIGHT


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, **_thresholds(panel)}, "overrides": []},
        "options": _options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": _SOURCE,
                "expr": query.expr.replace("{@", "{" + _INSTANCES),
                "legendFormat": query.legend,
                "range": True,
            }
            for at, query in enumerate(panel.queries)
        ],
    }


def _thresholds(panel: Panel) -> dict[str, Any]:
    if panel.kind != "stat":
        return {}
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    steps += [
        {"color": color, "value": value}
        for color, value in (("yellow", panel.yellow), ("red", panel.red))
        if value is not None
    ]
    return {"thresholds": {"mode": "absolute", "steps": steps}}


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "background", "graphMode": "none"}
    return {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["mean", "max", "lastNotNull"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a difference."""
    return write_or_check(PAGE, render(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
