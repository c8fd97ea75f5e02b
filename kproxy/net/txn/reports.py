"""The reports of procedures of transactions, as lines of kproxy's own log."""

import structlog

from kproxy.txn.procedures.outside import Level

_log = structlog.get_logger("kproxy.transactions")
_unknown_log = structlog.get_logger("kproxy.unknown_producer_ids")


def report(level: Level, text: str, transactional_id: str, **facts: object) -> None:
    """Writes a line (``procedures.outside.Report``)."""
    getattr(_log, level)(text, transactional_id=transactional_id, **facts)


def report_unknown(level: Level, text: str, **facts: object) -> None:
    """Writes a line about unknown producer ids (``procedures.rejects.UnknownReport``)."""
    getattr(_unknown_log, level)(text, **facts)
