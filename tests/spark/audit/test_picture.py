import pytest

from kproxy.spark.audit.picture import png_page
from kproxy.spark.audit.summary import Summary
from tests.spark.audit.summaries import summary

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
