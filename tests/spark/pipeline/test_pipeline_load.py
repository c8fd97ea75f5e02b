from pathlib import Path

import pytest

from kproxy.config import ConfigError
from kproxy.spark.pipeline import FileError, load
from kproxy.spark.pipeline.pipeline_model import ParquetSource, PythonStep, SqlStep, TopicSource, Watermark
from tests.spark.pipeline.files import WHOLE, loaded, write


def faults(folder: Path, text: str) -> list[str]:
    with pytest.raises(FileError) as caught:
        loaded(folder, text)
    return [line.removeprefix(f"{folder}/") for line in caught.value.problems]


def test_all_parts_of_a_file(tmp_path: Path) -> None:
    found = loaded(tmp_path, WHOLE)
    assert (found.name, found.checkpoint, found.every) == ("orders", "/var/lib/orders", "5 seconds")
    assert found.kafka is not None
    assert (found.kafka.control_url, found.kafka.control_socket) == ("http://127.0.0.1:19645", None)
    assert (found.kafka.transactional_id, found.kafka.producer) == ("pipeline-orders", {"compression.type": "zstd"})
    lines, late, shops = found.sources
    assert isinstance(lines, TopicSource)
    assert (lines.topics, lines.max_offsets_per_trigger) == (("orders-raw", "orders-old"), 1000)
    assert (lines.watermark, lines.starting_offsets) == (None, "earliest")
    assert isinstance(late, TopicSource)
    assert (late.pattern, late.watermark) == ("late-.*", Watermark("timestamp", "1 minute"))
    assert isinstance(shops, ParquetSource)
    assert shops.static
    first, second = found.steps
    assert isinstance(first, SqlStep)
    assert (first.inputs, second.inputs) == (("lines", "shops"), ("orders",))
    assert [sink.topic for sink in found.topic_sinks] == ["orders-clean", "order-totals"]
    assert found.topic_sinks[0].expressions == {"key": "id", "value": "to_json(struct(*))"}
    assert [sink.partition_by for sink in found.parquet_sinks] == [("day",)]
    assert found.spark == {"spark.sql.shuffle.partitions": "4"}


def test_a_small_file_has_defaults(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        """\
        sources: {a: {parquet: /in}}
        sinks: [{parquet: /out, from: a}]
        checkpoint: ${CHECKPOINT:-/tmp/c}/a
        trigger: availableNow
        """,
        {"CHECKPOINT": "/c"},
    )
    assert (found.name, found.checkpoint, found.every, found.steps) == ("p", "/c/a", None, ())


def test_each_fault_is_reported_with_its_line_and_key(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        """\
        kafka: {bootstrap.servers: "k:1", contrl: /c.sock}
        sources:
          a:
            topics: []
            start: latest
          b: {pattern: "x(", max.offsets.per.trigger: 1.5}
          c: {}
          1d: {parquet: /in, static: maybe}
        steps:
          - {name: s, sql: SELECT 1, python: m:f}
          - name: t
            sql:
        sinks:
          - {topic: out, form: a}
          - {}
        trigger: {continuous: 5 apples}
        spark: {a: "${NOT_SET}", b: [1]}
        """,
    )
    assert found == [
        "p.yaml:1: checkpoint: is missing",
        "p.yaml:1: kafka.contrl: unknown key; did you mean 'control'?",
        "p.yaml:4: sources.a.topics: must not be empty",
        "p.yaml:5: sources.a.start: unknown key; valid: topics, pattern, parquet, options, starting.offsets, "
        "max.offsets.per.trigger, watermark",
        "p.yaml:6: sources.b.pattern: 'x(' is no regular expression: missing ), unterminated subpattern at position 1",
        "p.yaml:6: sources.b.max.offsets.per.trigger: '1.5' must be a whole number from 1 up",
        "p.yaml:7: sources.c: must have one of topics, pattern, parquet",
        "p.yaml:8: sources.1d: '1d' must be letters, digits and underscores, as the name of a table",
        "p.yaml:8: sources.1d.static: 'maybe' must be true or false",
        "p.yaml:10: steps[0]: must have only one of sql, python",
        "p.yaml:12: steps[1].sql: has no value",
        "p.yaml:14: sinks[0].from: is missing",
        "p.yaml:14: sinks[0].form: unknown key; did you mean 'from'?",
        "p.yaml:15: sinks[1]: must have one of topic, parquet",
        "p.yaml:16: trigger.continuous: '5 apples' must be a number and milliseconds, seconds, minutes, hours or days, "
        "as '5 seconds'",
        "p.yaml:17: spark.a: the environment has no NOT_SET: set it, or write ${NOT_SET:-default}",
        "p.yaml:17: spark.b: must be a single value, not a list or a mapping",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "is empty"),
        ("a: [", "expected the node content, but found '<stream end>'"),
        ("a: \x07", "special characters are not allowed"),
    ],
)
def test_what_is_no_yaml(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text), {})
    [problem] = caught.value.problems
    assert problem.startswith(f"{tmp_path}/p.yaml")
    assert line in problem


def test_what_is_no_mapping(tmp_path: Path) -> None:
    assert faults(tmp_path, "- a") == ["p.yaml:1: must be a mapping, 'key: value' lines"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.yaml: No such file or directory"):
        load(tmp_path / "none.yaml", {})


def test_a_key_twice(tmp_path: Path) -> None:
    assert faults(tmp_path, WHOLE + "name: again\n") == ["p.yaml:23: name: is given twice"]


def test_a_url_of_control_needs_a_token(tmp_path: Path) -> None:
    text = WHOLE.replace("  token.file: /etc/kproxy/token\n", "")
    assert faults(tmp_path, text) == ["p.yaml:3: kafka.token.file: is missing: who asks at a URL must show a token"]
    assert "must be http://HOST:PORT" in faults(tmp_path, WHOLE.replace("http:", "https:"))[0]


def test_a_python_step_takes_what_its_function_names(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "cleaning.py").write_text("raise SystemExit\ndef clean(lines, shops): ...\n")
    text = WHOLE.replace("sql: SELECT * FROM lines JOIN shops USING (shop)", "python: cleaning:clean\n    path: lib")
    [step, _] = loaded(tmp_path, text).steps
    assert isinstance(step, PythonStep)
    assert (step.module, step.function, step.path) == ("cleaning", "clean", tmp_path / "lib")
    assert step.inputs == ("lines", "shops")
    assert "has no function clear; it has: clean" in faults(tmp_path, text.replace(":clean", ":clear"))[0]
    assert "must be module:function" in faults(tmp_path, text.replace(":clean", ""))[0]


def test_options_that_have_a_key_of_their_own(tmp_path: Path) -> None:
    text = WHOLE.replace("max.offsets.per.trigger: 1000", "options: {startingoffsets: latest, failOnDataLoss: false}")
    assert faults(tmp_path, text) == [
        "p.yaml:8: sources.lines.options: options.startingoffsets is not for here: it has a key of its own"
    ]


def test_the_page_has_a_file_that_is_in_order(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "pipeline.md").read_text(encoding="utf-8")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "shop_steps.py").write_text("def with_names(orders, shops): ...\n")
    found = loaded(tmp_path, page.partition("```yaml\n")[2].partition("```")[0])
    assert [step.name for step in found.steps] == ["orders", "named"]


def test_the_example_is_in_order() -> None:
    found = load(Path(__file__).parents[3] / "deploy" / "pipeline" / "orders.yaml", {})
    assert [step.inputs for step in found.steps] == [("lines",), ("parsed",), ("orders",), ("parsed",)]
