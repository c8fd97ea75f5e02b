"""Tests that start foreign programs (Spark, Kafka, a JVM, a browser): they come first, and reports name them."""

from typing import TYPE_CHECKING, Final

import pytest
from xdist.scheduler import LoadFileScheduling

from tools.rerun import STARTS

if TYPE_CHECKING:
    from pathlib import Path

#: What a test starts, by marker: the higher the number, the longer it takes.
WEIGHTS: Final = {"spark": 3, "kafka": 2, "java": 1, "browser": 1}
#: The marker of files that start none of these and take more than ten seconds.
LONG: Final = "long"
#: Tests whose session of Spark starts once if they run in one process.
SPARK: Final = ("tests/spark/", "tests/bench/test_spark.py", "tests/testing/test_spark_home.py")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Write the markers of foreign programs into the test's report, for ``tools/rerun.py``."""
    item.user_properties += [(STARTS, mark.name) for mark in item.iter_markers() if mark.name in WEIGHTS]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests start most come first: at the end the small ones keep all processes at work."""
    weight_of = WEIGHTS | {LONG: 1}
    weights: dict[Path, int] = {}
    for item in items:
        weight = max((weight_of.get(mark.name, 0) for mark in item.iter_markers()), default=0)
        weights[item.path] = max(weight, weights.get(item.path, 0))
    items.sort(key=lambda item: -weights[item.path])


class Scheduling(LoadFileScheduling):
    """All tests of a file, or all that share a session of Spark, run in one process."""

    def _split_scope(self, nodeid: str) -> str:
        return SPARK[0] if nodeid.startswith(SPARK) else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling | None:
    """In place of xdist's own for ``--dist loadfile``."""
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None
