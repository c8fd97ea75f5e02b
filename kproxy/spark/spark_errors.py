"""The errors of a data source, each as one line that a user understands, and that Spark shows first."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Only workers of Spark have variables that begin like this.
_OF_WORKERS: Final = "PYTHON_WORKER_FACTORY_"


class OptionError(ValueError):
    """An option is unknown, out of range or contradicts another; the message names it and what would be valid."""


class KafkaError(RuntimeError):
    """A broker or kproxy can't be reached, or refuses; the message says which, and for what."""


class DataLost(KafkaError):
    """Records that were to be read are deleted; the message names them, and says how to continue without them."""


class LoginFailed(KafkaError):
    """TLS or SASL fails in a way that the next attempt would not change; the message says what to do."""


@contextmanager
def cause_first() -> Iterator[None]:
    """Has Spark report the user's errors by their message alone, for methods that Spark's Python workers call.

    With their stacks the message is one of the last of up to 35 lines. Any other error is a bug and keeps its stack.
    A worker ends with its first error, so nothing else is reported in this way.
    """
    try:
        yield
    except (OptionError, KafkaError):
        if any(name.startswith(_OF_WORKERS) for name in os.environ):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
