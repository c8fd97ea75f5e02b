"""kproxy without what it knows of responses that clients have received: put in the place of rules."""

from typing import Any, Final
from unittest.mock import patch

from kproxy.dedup.producer_connection import ProducerConnection
from kproxy.dedup.retry_rules import USUAL_DEPTH, Rules
from kproxy.dedup.unconfirmed import PendingProduce

_END: Final = ProducerConnection.end
_ACKNOWLEDGED_WITHIN: Final = 1.0
_WINDOW: Final = 10.0
_LAST_SEQUENCE: Final = 2**31 - 1


def end_by_acks(self: ProducerConnection, now: float) -> None:
    """A response that was not acknowledged within a second was surely not received."""
    acknowledged = self.wire.written - self.wire.unacked()

    def surely(_: Rules, answer: PendingProduce, __: int) -> bool:
        return answer.position > acknowledged and now - answer.at > _ACKNOWLEDGED_WITHIN

    with patch.object(Rules, "surely_not_received", surely):
        _END(self, now)


def hear_all(self: ProducerConnection, at: float) -> None:
    """An acknowledgement shows that the client was there when the response was given."""
    self.origin.heard_at = max(self.origin.heard_at, at)


def window_for_all(*_: Any) -> float:
    """Equal records without timestamps are compared for 10 s after any end in good order."""
    return _WINDOW


def outlived_since_write(rules: Rules, answer: PendingProduce, now: float, acknowledged: int) -> bool:
    """The time that a connection outlives counts from when the response was written."""
    return answer.position <= acknowledged and now - answer.at >= 1.5 * rules.client_timeout


def few_unread(_: Rules, observed: int, __: str) -> int:
    """Five requests, or as many as were seen, are what a client may have sent before it read a response."""
    return max(observed, USUAL_DEPTH)


def stays_at_last(sequence: int, records: int) -> int:
    """The last sequence number has no successor."""
    return min(sequence + records, _LAST_SEQUENCE)
