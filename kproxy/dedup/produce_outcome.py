"""The outcome of a batch by the broker's response: a table of error codes, and the one rule around it."""

from enum import Enum, auto
from typing import Final

from kproxy.codec.messages import ErrorCode


class ProduceOutcome(Enum):
    """The state of a batch after a response to one attempt."""

    WRITTEN = auto()
    """The batch is in the log, by this attempt or by an earlier one."""
    REFUSED = auto()
    """This attempt wrote nothing, and another one would not either."""
    NOT_NOW = auto()
    """This attempt wrote nothing; another one may."""
    OPEN = auto()
    """This attempt may have written it, or may yet."""
    OUT_OF_SEQUENCE = auto()
    """The broker expects another sequence: a batch before it failed, or the broker lost the producer's state."""
    SUPERSEDED = auto()
    """The broker has seen a higher epoch of the producer: the writer of that epoch has fenced this one."""
    FENCED = auto()
    """A fence follows all attempts in the log, and none of them was written, nor will be."""


#: Each error that needs more thought than ``ErrorCode.retriable``. Kafka: ``ReplicaManager.appendRecords``, ``Errors``.
OUTCOMES: Final[dict[int, ProduceOutcome]] = {
    ErrorCode.NONE: ProduceOutcome.WRITTEN,
    # The broker keeps five batches; a resend that is older is known to be in the log, without its offset.
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: ProduceOutcome.WRITTEN,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: ProduceOutcome.OUT_OF_SEQUENCE,
    ErrorCode.UNKNOWN_PRODUCER_ID: ProduceOutcome.OUT_OF_SEQUENCE,
    ErrorCode.INVALID_PRODUCER_EPOCH: ProduceOutcome.SUPERSEDED,
    # Damaged by the client, or between kproxy and the broker: the client has to know (it is retriable for a client).
    ErrorCode.CORRUPT_MESSAGE: ProduceOutcome.REFUSED,
    # The topic may be in creation or deleted: the client decides, as it does with a broker.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ProduceOutcome.REFUSED,
    ErrorCode.UNKNOWN_TOPIC_ID: ProduceOutcome.REFUSED,
    ErrorCode.LEADER_NOT_AVAILABLE: ProduceOutcome.NOT_NOW,
    ErrorCode.NOT_ENOUGH_REPLICAS: ProduceOutcome.NOT_NOW,
    # A leader that steps down while it waits for its followers says this of a batch that it has appended (KAFKA-13574).
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ProduceOutcome.OPEN,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ProduceOutcome.OPEN,
    ErrorCode.REQUEST_TIMED_OUT: ProduceOutcome.OPEN,
    ErrorCode.UNKNOWN_SERVER_ERROR: ProduceOutcome.OPEN,
    ErrorCode.KAFKA_STORAGE_ERROR: ProduceOutcome.OPEN,
}


def outcome_of(error_code: int) -> ProduceOutcome:
    """The outcome that a response with ``error_code`` tells: retriable errors leave it open, others are refusals."""
    known = OUTCOMES.get(error_code)
    if known is not None:
        return known
    try:
        return ProduceOutcome.OPEN if ErrorCode(error_code).retriable else ProduceOutcome.REFUSED
    except ValueError:
        return ProduceOutcome.OPEN
