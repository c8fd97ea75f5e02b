"""Requests to the coordinator of a group or of a transactional id, wherever it is now."""

from collections.abc import Callable
from typing import Any, Final

import trio

from kproxy.codec.messages import ErrorCode, Message, response_class
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.broker_client import as_it_is
from kproxy.net.brokers.cluster import Cluster

_TRIES: Final = 10
_PAUSE_SECONDS = 0.2
GROUP: Final = 0
TRANSACTION: Final = 1
#: Another attempt may go well: it has moved, it is coming up, or it is still busy with the last transaction.
_AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


async def serves(cluster: Cluster, key: str, api_key: int) -> bool:
    """Whether the coordinator of a group serves an API key. OSError, RemoteProtocolError if it can't be asked."""
    broker = await cluster.coordinator(key)
    if broker is None:
        raise OSError(f"group {key} has no coordinator")
    return api_key in await cluster.versions(broker)


async def ask_coordinator(
    cluster: Cluster,
    key: str,
    request: Message,
    version: int | None = None,
    *,
    key_type: int = GROUP,
    newest: int = 99,
    trim: Callable[[Any, int], None] = as_it_is,
) -> Message | None:
    """The coordinator's answer, asked again where it has moved; None if it could not be had after some tries.

    ``version``: at which it is asked; if omitted as new as it serves, but not above ``newest``. ``trim`` takes out of
    the request what the version that was chosen can't say.
    """
    for attempt in range(_TRIES):
        if attempt:
            await trio.sleep(_PAUSE_SECONDS)
        try:
            broker = await cluster.coordinator(key, key_type)
            if broker is None:
                continue
            versions = (0, newest) if version is None else (version, version)
            answer = await cluster.call(broker.address, request, response_class(request.API_KEY), versions, trim=trim)
        except (OSError, RemoteProtocolError):
            cluster.count_error("errand")
            continue
        if not errors_in(answer) & _AGAIN:
            return answer
    return None


def errors_in(answer: Message) -> set[int]:
    """The error codes of an answer and of its partitions."""
    topics = getattr(answer, "topics", ())
    rows = (row for topic in topics for row in getattr(topic, "partitions", ()))
    return {getattr(answer, "error_code", 0)} | {row.error_code for row in rows}
