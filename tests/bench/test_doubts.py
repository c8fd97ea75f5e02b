"""What doubts cost, with a handful of requests: the doubts must be there, whatever the figures are."""

import pytest

from bench.doubts import DOUBTED_PARTITIONS, TURNS, doubts

pytestmark = [pytest.mark.kafka, pytest.mark.java]


def test_three_proxies_are_measured_one_of_them_in_doubt() -> None:
    figures = {figure.case: figure for figure in doubts(TURNS * 64 * 1024)}
    assert list(figures) == [
        "v2 produce, no producer ids: CPU",
        "v2 produce, producer ids, no doubts: CPU",
        f"v2 produce, {DOUBTED_PARTITIONS} in doubt elsewhere: CPU",
    ]
    assert min(figure.kproxy for figure in figures.values()) > 0
