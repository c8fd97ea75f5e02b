"""Tests that start foreign programs (Spark, Kafka, a JVM, a browser): they come first, and reports name them."""

from typing import TYPE_CHECKING, Final

import pytest

from tools.rerun import STARTS

if TYPE_CHECKING:
    from pathlib import Path

#: What a test starts, by marker: the higher the number, the longer it takes.
WEIGHTS: Final = {"spark": 3, "kafka": 2, "java": 1, "browser": 1}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Write the markers of foreign programs into the test's report, for ``tools/rerun.py``."""
    item.user_properties += [(STARTS, mark.name) for mark in item.iter_markers() if mark.name in WEIGHTS]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests start most come first: at the end the small ones keep all processes at work."""
    weights: dict[Path, int] = {}
    for item in items:
        weight = max((WEIGHTS.get(mark.name, 0) for mark in item.iter_markers()), default=0)
        weights[item.path] = max(weight, weights.get(item.path, 0))
    items.sort(key=lambda item: -weights[item.path])
