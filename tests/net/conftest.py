"""Time in tests whose kproxy, brokers and clients are tasks of one process."""

import inspect

import pytest

from tests.support.idle_clock import run_idle

_FOREIGN = ("kafka", "java")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give the trio tests of a module that is marked ``idle_clock`` such a clock, unless they start other programs."""
    function = getattr(item, "function", None)
    if not inspect.iscoroutinefunction(function) or any(map(item.get_closest_marker, _FOREIGN)):
        return
    if item.get_closest_marker("idle_clock"):
        item.add_marker(pytest.mark.trio(run=run_idle))
