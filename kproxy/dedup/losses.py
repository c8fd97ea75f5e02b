"""Acknowledged records that a log does not hold any more: after an unclean election, or in a topic made again."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kproxy.codec.produce_layout import PartitionRef


class Loss(NamedTuple):
    """Records of one producer that are missing on one partition."""

    #: The topic's name or id, and the partition.
    key: PartitionRef
    producer_id: int
    #: At most so many: others may have written between them.
    records: int
    #: The offset after the last of them, as it was when they were acknowledged.
    end: int


#: Counts and logs it.
ReportLoss: TypeAlias = Callable[[Loss], None]


def unreported(loss: Loss) -> None:
    """Reports nothing: for what is verified without a log."""
