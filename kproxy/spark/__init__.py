"""Spark reads and writes Kafka through kproxy exactly once: data source ``kproxy``, pipelines, audit.

``register(spark)`` makes the format ``kproxy`` known to a session. It needs the extra ``spark``; an audit
without Spark needs ``audit`` alone, so PySpark is imported where it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kproxy.spark.registration import register
    from kproxy.spark.source import KproxyDataSource
    from kproxy.spark.upsert import Upsert

__all__ = ["KproxyDataSource", "Upsert", "register"]

_HOMES: Final = {"KproxyDataSource": "source", "Upsert": "upsert", "register": "registration"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
