"""What Spark says when something fails, as one line: its messages are plans and stack traces of two languages."""

import re

from kproxy.config import ExitCode
from kproxy.errors import KproxyError

_LONGEST = 600
_PYTHON_CAUSE = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)")
_QUERY_ID = re.compile(r"^\[STREAM_FAILED\] Query .*?\[.*?\] terminated with exception: ")
_NOISE = re.compile(r"\s*SQLSTATE: \w+;?|\s*(Return Message: )?Traceback \(most recent call last\):")


class PipelineFailed(KproxyError):
    """A query ended with an error; the message is one line. What was not committed is run again at the next start."""

    exit_code = ExitCode.FAILURE


def one_line(error: BaseException) -> str:
    """The first line of a message, and the Python exception that caused it where one is buried in it."""
    text = str(error).strip()
    first = _NOISE.sub("", _QUERY_ID.sub("", text.splitlines()[0] if text else type(error).__name__)).rstrip(";. ")
    causes = _PYTHON_CAUSE.findall(text)
    if causes and causes[-1] not in first:
        first = f"{first}: {causes[-1]}"
    return first if len(first) <= _LONGEST else f"{first[:_LONGEST]}..."
