"""Which tests start foreign programs (Spark, Kafka, a JVM, a browser), in the reports of a run."""

from typing import Final

import pytest

from tools.rerun import STARTS

#: What a test starts, by marker: the higher the number, the longer it takes.
WEIGHTS: Final = {"spark": 3, "kafka": 2, "java": 1, "browser": 1}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Write the markers of foreign programs into the test's report, for ``tools/rerun.py``."""
    item.user_properties += [(STARTS, mark.name) for mark in item.iter_markers() if mark.name in WEIGHTS]
