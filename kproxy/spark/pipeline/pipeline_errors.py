"""What Spark says when something fails, as one line: its messages are plans and stack traces of two languages."""

import re

from kproxy.config import ExitCode
from kproxy.errors import KproxyError

_LONGEST = 600
_PYTHON_CAUSE = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)")
_JAVA_CAUSE = re.compile(r"^(?:Caused by: |: )(\S.*)", re.MULTILINE)
_QUERY_ID = re.compile(r"^\[STREAM_FAILED\] Query .*?\[.*?\] terminated with exception: ")
_NOISE = re.compile(r"\s*SQLSTATE: \w+;?|\s*(Return Message: )?Traceback \(most recent call last\):")


class PipelineFailed(KproxyError):
    """A query ended with an error; the message is one line. What was not committed is run again at the next start."""

    exit_code = ExitCode.FAILURE


def one_line(error: BaseException) -> str:
    """Return the first line of a message, with the exception of Python and of Java that caused it, if it names any."""
    text = str(error).strip()
    first = _NOISE.sub("", _QUERY_ID.sub("", text.splitlines()[0] if text else type(error).__name__)).rstrip(";. ")
    causes = _PYTHON_CAUSE.findall(text)
    for cause in (causes[-1:], _JAVA_CAUSE.findall(text)[-1:]):
        if cause and cause[0].rstrip(".: ") not in first:
            first = f"{first}: {cause[0]}"
    return first if len(first) <= _LONGEST else f"{first[:_LONGEST]}..."
