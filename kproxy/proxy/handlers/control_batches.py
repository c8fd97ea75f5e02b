"""Which consumers may be sent control batches: the end markers of transactions, and those of kproxy's own fences.

Some clients deliver the records of control batches to the application as if a producer had written them: kafka-python
1.4.7 to 2.0.2 (Fetch v4) and kafka-go 0.4 (v10). In topics without transactions nobody noticed, but a fence of kproxy
writes a marker to any topic. So kproxy treats each client as one of these until its software name (KIP-511) is among
those that ``tests/interop/test_markers.py`` has seen to skip control batches.
"""

import sys
from typing import Final

from kproxy.proxy.context import Context

#: Names of software that skips control batches at each version that sends a name at all.
_SKIP: Final = frozenset({"apache-kafka-java", "librdkafka", "kgo", "sarama", "kproxy", "kproxy-spark"})
#: Wrappers of librdkafka give a name of their own, and its version after theirs: "2.16.1-rdkafka-2.16.1".
_CORE: Final = "rdkafka"
#: Names of software that skips control batches since a major version.
_SKIP_SINCE: Final = {"kafka-python": 3}
#: Of a major version: Python refuses to read a number of thousands of digits.
_MOST_DIGITS: Final = 9
#: Java clients 0.11 to 2.3 send no name. Their Fetch version, and the ApiVersions version that the same releases send.
_JAVA_WITHOUT_NAME: Final = {5: 1, 6: 1, 7: 1, 8: 2, 10: 2, 11: 2}
#: The first Fetch version with sessions (KIP-227), which these clients use from then on, and others do not.
_FIRST_SESSION: Final = 7


def skips_control_batches(ctx: Context) -> bool:
    """Whether the client is proven to skip control batches, wherever they are."""
    name, version = ctx.client.software, ctx.client.software_version
    if name in _SKIP or _CORE in version:
        return True
    major = version.partition(".")[0]
    is_number = major.isdecimal() and len(major) <= _MOST_DIGITS
    return is_number and int(major) >= _SKIP_SINCE.get(name, sys.maxsize)


def may_end_with_marker(ctx: Context, version: int, session_epoch: int) -> bool:
    """Whether a Fetch response may hold a control batch where the log ends with hidden batches.

    A consumer that gets one moves its position to the end of the log; one that gets none stays before the hidden run.
    Some wait for the end: Kafka Streams when it restores its stores. So Java clients without a name get one, too.
    """
    if skips_control_batches(ctx):
        return True
    has_session = version < _FIRST_SESSION or session_epoch >= 0
    return not ctx.client.software and has_session and _JAVA_WITHOUT_NAME.get(version) == ctx.client.api_versions
