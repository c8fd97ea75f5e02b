"""Requests that a broker passes on to the controller, and their errors when there is none."""

from collections.abc import Iterable
from typing import Final

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.fake_api import Call

_PATIENCE_S: Final = 60.0
"""How long Kafka 4.3.0 keeps such a request, whatever ``timeout_ms`` the client gave (measured: 60.02 s for 2 s)."""

_MOST_PARTITIONS: Final = 10_000
"""How many one request may make (``ReplicationControlManager.MAX_PARTITIONS_PER_BATCH``)."""


def excessive(partitions: Iterable[int]) -> ErrorCode:
    """Return POLICY_VIOLATION if a request would make too many partitions; NONE otherwise."""
    return ErrorCode.POLICY_VIOLATION if sum(partitions) > _MOST_PARTITIONS else ErrorCode.NONE


async def reach_controller(call: Call) -> ErrorCode:
    """Wait for the controller; REQUEST_TIMED_OUT when none has come after a minute."""
    with trio.move_on_after(_PATIENCE_S):
        while not call.cluster.controller_alive:
            await call.cluster.wait_for_change()
        return ErrorCode.NONE
    return ErrorCode.REQUEST_TIMED_OUT
