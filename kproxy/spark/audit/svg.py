"""Charts as inline SVG: they have the page's colours, so that they are light or dark as the page is."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from kproxy.spark.audit.charts import Bar, Chart, shortened

_WIDTH: Final = 760
_LABEL: Final = 190
_NOTE: Final = 90
_STEP: Final = 26
_HEIGHT: Final = 170
_LONGEST: Final = 26


def svg(chart: Chart) -> str:
    """One chart; every name in it is escaped."""
    body = "".join(_columns(chart) if chart.is_time else _rows(chart))
    height = _HEIGHT + 40 if chart.is_time else _STEP * len(chart.bars) + 8
    head = f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(chart.title)}">'
    return f"{head}{body}</svg>"


def _rows(chart: Chart) -> Iterator[str]:
    room = _WIDTH - _LABEL - _NOTE
    for number, bar in enumerate(chart.bars):
        top = number * _STEP + 4
        yield _text(_LABEL - 8, top + 13, shortened(bar.label, _LONGEST), "end")
        at = float(_LABEL)
        for tone, value in zip(chart.tones, bar.parts, strict=True):
            width = room * value / chart.most if chart.most else 0
            if width:
                yield _rect(tone, at, top, width, _STEP - 8, f"{bar.label}: {tone} {value / sum(bar.parts):.1%}")
            at += width
        yield _text(at + 6, top + 13, bar.note, "start")


def _columns(chart: Chart) -> Iterator[str]:
    step = _WIDTH / max(len(chart.bars), 1)
    for number, bar in enumerate(chart.bars):
        height = _HEIGHT * bar.parts[0] / chart.most if chart.most else 0
        yield _rect(
            chart.tones[0], number * step, _HEIGHT + 14 - height, max(step - 2, 1), height, f"{bar.label}: {bar.note}"
        )
    yield f'<line class="axis" x1="0" x2="{_WIDTH}" y1="{_HEIGHT + 14}" y2="{_HEIGHT + 14}"/>'
    yield _text(0, 10, f"most: {chart.most:,.0f}", "start")
    yield from _ends(chart.bars)


def _ends(bars: Sequence[Bar]) -> Iterator[str]:
    yield _text(0, _HEIGHT + 32, bars[0].label, "start")
    if len(bars) > 1:
        yield _text(_WIDTH, _HEIGHT + 32, bars[-1].label, "end")


def _rect(tone: str, x: float, y: float, width: float, height: float, told: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{escape(tone)}" {place}><title>{escape(told)}</title></rect>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
