"""What Kafka's error codes have in common, beside what ``ErrorCode`` says of each."""

from typing import Final

from kproxy.codec.messages import ErrorCode

#: The topic or the partition does not exist, or the broker does not know it yet.
NO_TOPIC: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
#: Errors that may pass by themselves, though clients do not retry after each of them: they are believed if they recur.
DOUBTFUL: Final = NO_TOPIC | {ErrorCode.UNKNOWN_SERVER_ERROR}


def error_name(code: int) -> str:
    """Kafka's name of an error code, or its number."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def is_retriable(code: int, *, unknown: bool) -> bool:
    """Whether Kafka's clients retry after an error; ``unknown``: what holds for a code that is not known here."""
    try:
        return ErrorCode(code).retriable
    except ValueError:
        return unknown
