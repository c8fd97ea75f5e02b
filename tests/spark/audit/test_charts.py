import pytest

from kproxy.spark.audit.charts import MOST_BARS, charts, shortened, size
from tests.spark.audit.summaries import EVIL, summary


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1536, "1.5 KiB"), (200 << 20, "200 MiB"), (3 << 60, "3072.0 PiB")],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


def test_long_names_keep_both_ends() -> None:
    assert shortened("orders", 6) == "orders"
    assert [shortened(f"a-long-name-of-a-team.orders.v{number}", 12) for number in (1, 2)] == [
        "a-long…rs.v1",
        "a-long…rs.v2",
    ]


def test_bytes_by_visibility_have_the_largest_topic_first() -> None:
    chart = charts(summary())[0]
    assert [bar.label for bar in chart.bars] == [EVIL, "bills"]
    assert chart.bars[0].parts == [4 << 20, 1 << 19, 0, 0]
    assert chart.most == 9 << 19


def test_the_unprotected_share_is_of_one() -> None:
    chart = charts(summary())[1]
    assert [(bar.parts, bar.note) for bar in chart.bars] == [([0.5], "50 %"), ([0.0], "0 %")]
    assert chart.most == 1


def test_repetitions_stand_over_time() -> None:
    chart = charts(summary())[2]
    assert chart.is_time
    assert [bar.parts for bar in chart.bars] == [[5], [0]]


def test_only_so_many_topics_are_drawn() -> None:
    rows = [{"topic": f"t{number}", "visibility": "committed", "bytes": number} for number in range(40)]
    bars = charts(summary(visibility=rows))[0].bars
    assert [bar.label for bar in bars] == [f"t{number}" for number in range(39, 39 - MOST_BARS, -1)]
