"""The crash case with a handful of partitions: it must end, with figures that fit each other."""

import pytest

from bench.recovery import recovery

pytestmark = [pytest.mark.kafka, pytest.mark.java]


def test_a_killed_proxy_is_replaced_and_the_retry_accepted() -> None:
    figures = {figure.case: figure.kproxy for figure in recovery((1, 3))}
    assert len(figures) == 8
    for named in ("1 partition", "3 partitions"):
        assert figures[f"first start, {named}: accepted"] > 0
        whole = figures[f"kill -9, {named}: retry accepted"]
        after_start = figures[f"kill -9, {named}: of it after start"]
        assert 0 < after_start < whole
        assert figures[f"kill -9, {named}: duplicates"] == 0
