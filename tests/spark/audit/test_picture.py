import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from kproxy.spark.audit.catalogue import Severity
from kproxy.spark.audit.picture import draw_page, png_page
from kproxy.spark.audit.summary import Summary
from tests.spark.audit.summaries import outcome, summary

EMPTY = summary(visibility=[], protection=[], stable_offsets=[], repeated_over_time=[])


@pytest.mark.parametrize("given", [summary(broken=3, warnings=4), EMPTY], ids=["full", "empty"])
def test_the_picture_is_a_png_of_one_width(given: Summary) -> None:
    png = png_page(given)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(png[16:20], "big") == 1210


def test_what_is_drawn_makes_it_longer() -> None:
    def height(png: bytes) -> int:
        return int.from_bytes(png[20:24], "big")

    assert height(png_page(summary())) > height(png_page(EMPTY))


@pytest.mark.parametrize("topics", [1, 3, 40])
def test_a_legend_covers_no_bar_and_no_text(topics: int) -> None:
    parts = {"committed": 4 << 20, "aborted": 1 << 20, "undecided": 1 << 20, "control": 1 << 19}
    visibility = [
        {"topic": f"orders-{number}", "visibility": name, "bytes": count}
        for number in range(topics)
        for name, count in parts.items()
    ]
    figure = draw_page(summary(visibility=visibility))
    FigureCanvasAgg(figure).draw()
    (legend,) = [found for axes in figure.axes if (found := axes.get_legend())]
    box = legend.get_window_extent()
    bars = [bar for axes in figure.axes for bar in axes.patches]
    texts = [text for text in figure.findobj(Text) if text.get_text() and text not in legend.findobj(Text)]
    others = [each.get_window_extent() for each in (*bars, *texts)]
    assert len(bars) > topics
    assert not any(box.overlaps(other) for other in others)
    assert figure.bbox.contains(box.x0, box.y0) and figure.bbox.contains(box.x1, box.y1)


def test_a_count_is_drawn_only_of_what_was_judged() -> None:
    unreadable = [outcome("unreadable_log", Severity.BROKEN, 1), outcome("sequence_gaps", Severity.BROKEN)]
    texts = [text.get_text() for axes in draw_page(summary(outcomes=unreadable)).axes for text in axes.texts]
    assert "1" in texts
    assert "0" not in texts
