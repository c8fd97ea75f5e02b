"""Requests that must go to a group's coordinator, wherever the client sent them (OffsetCommit v0, OffsetFetch v0)."""

import trio

from kproxy.codec.messages import ErrorCode, Message
from kproxy.errors import RemoteProtocolError
from kproxy.net.cluster import Cluster
from kproxy.proxy.session import Errand

_TRIES = 10
_PAUSE_SECONDS = 0.2
_ELSEWHERE = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


async def run_errand(cluster: Cluster, errand: Errand) -> Message | None:
    """The coordinator's answer; None if it could not be had after some tries."""
    for attempt in range(_TRIES):
        if attempt:
            await trio.sleep(_PAUSE_SECONDS)
        try:
            broker = await cluster.coordinator(errand.group_id)
            if broker is None:
                continue
            client = await cluster.client(broker.address)
            answer = await client.call(errand.request, errand.exchange.upstream_version)
        except (OSError, RemoteProtocolError):
            cluster.count_error("errand")
            continue
        if not _errors(answer) & _ELSEWHERE:
            return answer
    return None


def _errors(answer: Message) -> set[int]:
    topics = getattr(answer, "topics", [])
    return {getattr(answer, "error_code", 0)} | {row.error_code for topic in topics for row in topic.partitions}
