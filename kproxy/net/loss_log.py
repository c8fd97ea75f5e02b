"""Counts and logs acknowledged records that a log was found not to hold any more."""

from collections.abc import Mapping

import structlog

from kproxy.codec.topic_names import is_legal_topic
from kproxy.dedup.losses import Loss
from kproxy.proxy.kept_stats import KeptStats

log = structlog.get_logger("kproxy.resend")


class LossLog:
    """The report of losses of a process."""

    def __init__(self, stats: KeptStats, topic_names: Mapping[bytes, str]) -> None:
        """``topic_names``: by topic id, as far as they are known."""
        self._stats = stats
        self._topic_names = topic_names

    def report(self, loss: Loss) -> None:
        """Count and log a loss (``kproxy.dedup.losses.ReportLoss``)."""
        self._stats.lost_records += loss.records
        topic, partition = loss.key
        log.error(
            "a log has lost acknowledged records",
            topic=self._topic_names.get(topic) or _plain(topic),
            partition=partition,
            records=loss.records,
            offsets_below=loss.end,
            producer_id=loss.producer_id,
        )


def _plain(topic: bytes) -> str:
    return topic.decode() if is_legal_topic(topic) else topic.hex()
