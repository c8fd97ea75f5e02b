"""Time in tests whose kproxy, brokers and clients are tasks of one process, as in ``tests/net``."""

from tests.net.conftest import pytest_itemcollected

__all__ = ["pytest_itemcollected"]
