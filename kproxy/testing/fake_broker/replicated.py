"""Waiting until the replicas have what was appended: what acks=all means for Produce and for markers."""

from collections.abc import Callable
from dataclasses import dataclass

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.fake_api import Call
from kproxy.testing.fake_broker.partition import Partition, Topic


@dataclass(slots=True)
class Awaited:
    """One partition's append that is not replicated yet.

    :param end: the offset that the high watermark must reach.
    :param refuse: is called with the error, if there is one in the end.
    """

    topic: Topic
    partition: Partition
    end: int
    refuse: Callable[[ErrorCode], None]


async def until_replicated(call: Call, awaited: list[Awaited], timeout_ms: int) -> None:
    """Wait for all the appends; what takes longer than ``timeout_ms`` is REQUEST_TIMED_OUT, and stays in the log.

    As in Kafka's ``DelayedProduce``: NOT_ENOUGH_REPLICAS_AFTER_APPEND only if in-sync replicas went after the high
    watermark had come; while there are too few it does not come at all (KIP-966), and the time runs out.
    """
    with trio.move_on_after(max(timeout_ms, 0) / 1000):
        while awaited := [append for append in awaited if not _settled(call, append)]:
            await call.cluster.wait_for_change()
    for append in awaited:
        append.refuse(ErrorCode.REQUEST_TIMED_OUT)


def _settled(call: Call, append: Awaited) -> bool:
    """Return whether an append's outcome is known; an error counts as one."""
    if call.cluster.topics.get(append.topic.name) is not append.topic:
        append.refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    elif not call.leads(append.partition):
        append.refuse(call.not_leader(append.partition))
    elif append.partition.high_watermark < append.end:
        return False
    elif append.partition.under_min_isr:
        append.refuse(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    return True
