"""kproxy's log during a run: silent, and a bug that it reports of itself breaks an invariant."""

import logging
import traceback
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog

from verification.simulation import invariants
from verification.simulation.history import History


@contextmanager
def watched_logs(history: History) -> Iterator[None]:
    """Routes the log into a history until the block ends."""

    def take(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
        if event.get("exc_info"):
            history.breaks(invariants.FAILED, f"{event.get('event')}: {traceback.format_exc()}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[take],
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)
