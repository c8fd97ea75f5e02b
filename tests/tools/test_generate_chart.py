"""The chart has kproxy's options, rules and dashboard, and the rest of its schema is left alone."""

import json
from typing import Any

from kproxy.config import Config, options
from tools import generate_chart
from tools.chart_values import Value, read_values, render_table

OTHERS = '{"properties": {"config": {"type": "string"}, "files": {"type": "object"}}}'


def keys(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(generate_chart.render_schema(OTHERS))["properties"]["config"]["properties"][name]
    return found


def test_the_keys_of_config_are_the_options() -> None:
    schema = json.loads(generate_chart.render_schema(OTHERS))
    assert schema["properties"]["config"]["properties"].keys() == options(Config).keys()
    assert schema["properties"]["config"]["additionalProperties"] is False
    assert schema["properties"]["files"] == {"type": "object"}


def test_numbers_have_bounds() -> None:
    assert keys("buffer.memory")["anyOf"][0] == {"type": "integer", "minimum": 65536, "maximum": 1 << 40}
    assert keys("idempotence.enable")["type"] == ["boolean", "string"]


def test_the_table_of_values_has_names_defaults_and_comments() -> None:
    text = "# One.\n#   a: example\na: 1\nb:\n  # Two,\n  # lines.\n  c: {}\n  d: [x]\n"
    assert read_values(text) == [
        Value("a", "1", "One."),
        Value("b.c", "", "Two, lines."),
        Value("b.d", '["x"]', "Two, lines."),
    ]
    assert '| `b.d` | `["x"]` |' in render_table(read_values(text))


def test_each_value_of_the_chart_is_explained() -> None:
    values = read_values((generate_chart.CHART / "values.yaml").read_text(encoding="utf-8"))
    assert [value.name for value in values if not value.text] == []


def test_the_chart_is_up_to_date() -> None:
    assert generate_chart.main(["--check"]) == 0
