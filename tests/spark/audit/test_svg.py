from xml.etree import ElementTree

import pytest

from kproxy.spark.audit.charts import Bar, Chart, charts
from kproxy.spark.audit.svg import svg
from tests.spark.audit.summaries import EVIL, summary


@pytest.mark.parametrize("chart", charts(summary(broken=1)), ids=lambda chart: chart.title)
def test_a_chart_is_well_formed_with_one_tip_for_each_part(chart: Chart) -> None:
    tree = ElementTree.fromstring(svg(chart))
    shown = [part for bar in chart.bars for part in bar.parts if part or chart.is_time]
    assert len(tree.findall("rect/title")) == len(shown)
    assert all(float(rect.attrib["width"]) > 0 for rect in tree.findall("rect"))


def test_names_are_escaped_and_long_ones_cut() -> None:
    chart = Chart("Title", ("repeated",), [Bar(EVIL, [1], "1")], 1)
    text = svg(chart)
    assert "<script" not in text
    tree = ElementTree.fromstring(text)
    assert [each.text for each in tree.findall("text")] == [f"{EVIL[:13]}…{EVIL[-12:]}", "1"]
    assert tree.findall("rect/title")[0].text == f"{EVIL}: repeated 100.0%"


@pytest.mark.parametrize("is_time", [True, False])
def test_bars_of_nothing_have_no_height(is_time: bool) -> None:
    chart = Chart("Title", ("repeated",), [Bar("a", [0], "0"), Bar("b", [0], "0")], 0, is_time)
    rects = ElementTree.fromstring(svg(chart)).findall("rect")
    assert all(float(rect.attrib["height"]) == 0 for rect in rects)
