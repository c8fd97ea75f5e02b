import json
from io import StringIO

import pytest
from rich.console import Console

from kproxy.spark.pipeline.display import JsonLines, LiveTable, LogLines, choose
from kproxy.spark.pipeline.progress import BatchDone

DONE = BatchDone("topics", 4, 1200, 350.4, {"clean": 1000, "totals": 2}, 17, 3.42, "2026-11-22T02:58:52.000+00:00")


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with choose(json_lines=True) as display:
        assert isinstance(display, JsonLines)
        display.say("starts")
        display.show(DONE)
    [line] = capsys.readouterr().out.splitlines()
    assert json.loads(line)["rows_out"] == {"clean": 1000, "totals": 2}


def test_log_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with choose(json_lines=False) as display:
        assert isinstance(display, LogLines)
        display.say("Spark starts")
        display.show(DONE)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["Spark starts", "batch committed"]
    assert lines[1]["batch"] == 4


def test_a_table_counts_what_was_written() -> None:
    text = StringIO()
    console = Console(file=text, force_terminal=True, width=140, color_system=None)
    with LiveTable(console) as display:
        display.say("orders runs")
        display.show(DONE)
        display.show(DONE._replace(batch=5))
    last = text.getvalue()
    for words in ("orders runs", "clean: 1,000 (2,000)", "totals: 2 (4)", "02:58:52", "350", "17", "3.4 s"):
        assert words in last
