from pathlib import Path

import pytest

from kproxy.spark.pipeline import FileError
from tests.spark.pipeline.files import WHOLE, loaded

STEPS = """\
sources: {{a: {{parquet: /in}}}}
steps:
{steps}
sinks: [{{parquet: /out, from: {last}}}]
checkpoint: /c
trigger: availableNow
"""


def faults(folder: Path, text: str) -> list[str]:
    with pytest.raises(FileError) as caught:
        loaded(folder, text)
    return [line.removeprefix(f"{folder}/p.yaml:") for line in caught.value.problems]


def steps(*queries: tuple[str, str]) -> str:
    lines = [f"  - {{name: {name}, sql: SELECT * FROM {reads}}}" for name, reads in queries]
    return STEPS.format(steps="\n".join(lines), last=queries[-1][0])


def test_an_unknown_table(tmp_path: Path) -> None:
    assert faults(tmp_path, steps(("first", "a"), ("second", "frist"))) == [
        "4: steps[1].sql: step 'second' reads 'frist': no source, no step; did you mean 'first'?"
    ]


def test_faults_of_parts_and_between_them_are_reported_at_once(tmp_path: Path) -> None:
    text = """\
    sources: {a: {parquet: /in}, b: {}}
    steps:
      - {name: s, sql: SELECT * FROM b}
      - {name: t, sql: SELECT 1, python: m:f}
      - {name: u, sql: SELECT * FROM nowhere}
    sinks:
      - {parquet: /out, from: t}
      - {parquet: /out, from: gone}
      - {topic: x, from: s}
    checkpoint: /c
    trigger: often
    """
    assert faults(tmp_path, text) == [
        "1: sources.b: must have one of topics, pattern, parquet",
        "4: steps[1]: must have only one of sql, python",
        "5: steps[2].sql: step 'u' reads 'nowhere': no source, no step",
        "8: sinks[1]: two sinks write to /out",
        "8: sinks[1]: from: 'gone' is no source and no step",
        "9: sinks[2]: topics are read and written through kproxy: 'kafka:' must say where it is",
        "11: trigger: must be 'availableNow', or 'continuous:' and an interval",
    ]


def test_names_with_a_dot_are_spark_s_tables(tmp_path: Path) -> None:
    loaded(tmp_path, steps(("first", "a JOIN lake.shops")))


def test_names_are_compared_as_spark_does(tmp_path: Path) -> None:
    loaded(tmp_path, steps(("First", "A"), ("second", "FIRST")))
    assert faults(tmp_path, steps(("First", "a"), ("fIRST", "a"))) == [
        "4: steps[1].sql: 'fIRST' is already the name of another source or step (Spark ignores case)"
    ]


def test_a_step_that_stands_below(tmp_path: Path) -> None:
    assert faults(tmp_path, steps(("first", "second"), ("second", "a"))) == [
        "3: steps[0].sql: step 'first' reads 'second', which is below it: a step reads steps above it"
    ]


def test_steps_in_a_circle(tmp_path: Path) -> None:
    found = faults(tmp_path, steps(("first", "third"), ("second", "first"), ("third", "second")))
    assert found == ["3: steps[0].sql: steps read each other: 'first' reads 'third' reads 'second' reads 'first'"]
    assert "steps read each other: 'first' reads 'first'" in faults(tmp_path, steps(("first", "first")))[0]


def test_two_sinks_to_one_place(tmp_path: Path) -> None:
    assert faults(tmp_path, WHOLE.replace("order-totals", "orders-clean")) == [
        "18: sinks[1]: two sinks write to the topic 'orders-clean': unite their rows in a step"
    ]
    twice = WHOLE.replace("checkpoint", "  - {parquet: /data/orders/, from: totals}\ncheckpoint")
    assert faults(tmp_path, twice) == ["20: sinks[3]: two sinks write to /data/orders/"]


def test_a_pipeline_that_would_read_what_it_writes(tmp_path: Path) -> None:
    loop = ["17: sinks[0]: the topic 'orders-clean' is read by source 'lines': a loop"]
    assert faults(tmp_path, WHOLE.replace("orders-old", "orders-clean")) == loop
    by_pattern = faults(tmp_path, WHOLE.replace('"late-.*"', "orders-.*"))
    assert by_pattern == [loop[0].replace("lines", "late")]
    assert "is read by this pipeline too" in faults(tmp_path, WHOLE.replace("/data/shops", "/data/orders/"))[0]


def test_a_sink_of_an_unknown_step(tmp_path: Path) -> None:
    assert faults(tmp_path, WHOLE.replace("from: totals", "from: total")) == [
        "18: sinks[1]: from: 'total' is no source and no step; did you mean 'totals'?"
    ]


def test_topics_without_kafka(tmp_path: Path) -> None:
    text = "\n".join(line for line in WHOLE.splitlines() if "producer" not in line)
    found = faults(tmp_path, text[: text.index("kafka")] + text[text.index("sources") :])
    assert [line.split(":")[1].strip() for line in found] == ["sources.lines", "sources.late", "sinks[0]", "sinks[1]"]


def test_directories_where_a_batch_would_be_seen_in_part(tmp_path: Path) -> None:
    assert faults(tmp_path, WHOLE.replace("/data/orders", "s3a://data/orders")) == [
        "19: sinks[2]: s3a://data/orders: s3a can't rename a directory at once: readers would see half a batch"
    ]


def test_nothing_that_streams(tmp_path: Path) -> None:
    text = steps(("first", "a")).replace("parquet: /in", "parquet: /in, static: true")
    assert "there is nothing that would begin a batch" in faults(tmp_path, text)[0]


def test_what_the_data_source_would_say(tmp_path: Path) -> None:
    assert "startingOffsets" in faults(tmp_path, WHOLE.replace('"late-.*"', '"late-.*", starting.offsets: latst'))[0]
    assert "kafka.acks: the sink sets it" in faults(tmp_path, WHOLE.replace("compression.type: zstd", "acks: 1"))[0]
    assert "must be HOST:PORT" in faults(tmp_path, WHOLE.replace("127.0.0.1:19092", "127.0.0.1"))[0]
