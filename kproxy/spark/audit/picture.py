"""The report as one picture (PNG), for chats and tickets: verdict, findings and charts."""

from io import BytesIO
from textwrap import fill
from typing import Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from kproxy.spark.audit.catalogue import Severity
from kproxy.spark.audit.charts import Chart, charts, shortened, size
from kproxy.spark.audit.style import LIGHT
from kproxy.spark.audit.summary import Summary

_WIDTH: Final = 11.0
_DPI: Final = 110
_LINE: Final = 0.26
_LONGEST: Final = 32
_TONES: Final = {Severity.BROKEN: "broken", Severity.WARNING: "warning", Severity.UNKNOWN: "faint"}


def png_page(summary: Summary) -> bytes:
    """The bytes of a PNG file."""
    figure = draw_page(summary)
    out = BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(out, format="png", facecolor=LIGHT["ground"])
    return out.getvalue()


def draw_page(summary: Summary) -> Figure:
    """The picture before it is painted."""
    drawn = [chart for chart in charts(summary) if chart.bars]
    heights = [_text_height(summary), *(_chart_height(chart) for chart in drawn)]
    figure = Figure(figsize=(_WIDTH, sum(heights)), dpi=_DPI, facecolor=LIGHT["ground"])
    figure.set_layout_engine("constrained", w_pad=0.15, h_pad=0.12)
    rows = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)
    _text(rows[0][0], summary, heights[0])
    for axes, chart in zip(rows[1:, 0], drawn, strict=True):
        _draw(axes, chart)
    return figure


def _text_height(summary: Summary) -> float:
    return _LINE * (len(summary.outcomes) + 5 + _sentence(summary).count("\n"))


def _chart_height(chart: Chart) -> float:
    return 2.6 if chart.is_time else 0.9 + 0.28 * len(chart.bars)


def _sentence(summary: Summary) -> str:
    return fill(summary.sentence, 90)


def _text(axes: Axes, summary: Summary, height: float) -> None:
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(height, 0)
    tone = {"held": "held", "warnings": "warning", "broken": "broken"}[summary.verdict]
    # parse_math: a dollar sign in a topic's name is no formula
    axes.text(0, _LINE, _sentence(summary), color=LIGHT[tone], size=14, weight="bold", va="top", parse_math=False)
    totals = summary.totals
    counts = f"{totals['topics']:,} topics   {totals['records']:,} records   {size(totals['bytes'])}"
    line = f"{shortened(summary.cluster, 40)}   {summary.at} UTC   {counts}"
    at = _LINE * (2.6 + _sentence(summary).count("\n"))
    axes.text(0, at, line, color=LIGHT["faint"], size=10, va="top")
    for number, outcome in enumerate(summary.outcomes):
        none = ("0", LIGHT["held"]) if summary.is_judged else ("-", LIGHT["faint"])
        count, colour = (f"{outcome.count:,}", LIGHT[_TONES[outcome.severity]]) if outcome.count else none
        y = at + _LINE * (number + 1.4)
        axes.text(0.075, y, count, color=colour, size=10, weight="bold", ha="right", va="top")
        axes.text(0.09, y, outcome.title, color=LIGHT["ink"], size=10, va="top")


def _draw(axes: Axes, chart: Chart) -> None:
    axes.set_title(chart.title, loc="left", size=11, weight="bold", color=LIGHT["ink"])
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    places = range(len(chart.bars))
    if chart.is_time:
        axes.bar(places, [bar.parts[0] for bar in chart.bars], color=LIGHT[chart.tones[0]])
        ends = sorted({0, len(chart.bars) - 1})
        axes.set_xticks(ends, [chart.bars[end].label for end in ends], size=8)
        return
    left = [0.0] * len(chart.bars)
    for number, tone in enumerate(chart.tones):
        values = [bar.parts[number] for bar in chart.bars]
        axes.barh(places, values, left=left, color=LIGHT[tone], label=tone)
        left = [start + value for start, value in zip(left, values, strict=True)]
    for place, bar in zip(places, chart.bars, strict=True):
        axes.text(left[place], place, f"  {bar.note}", va="center", size=8, color=LIGHT["faint"])
    axes.set_yticks(places, [shortened(bar.label, _LONGEST) for bar in chart.bars], size=8)
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.invert_yaxis()
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([])
    axes.set_xlim(0, (chart.most or 1) * 1.12)
    if len(chart.tones) > 1:
        # above the axes, beside the title: within them it would cover the bars of few topics
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), fontsize=8, frameon=False, ncols=len(chart.tones))
