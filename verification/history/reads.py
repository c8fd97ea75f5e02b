"""When records were read first."""

from collections.abc import Sequence
from typing import TypeAlias

from verification.history.operations import Operation

FirstReads: TypeAlias = dict[tuple[str, int, str], tuple[int, Operation]]
"""By topic, partition and value: when the first poll with it ended, and that poll."""


def first_reads(history: Sequence[Operation]) -> FirstReads:
    """Return when each record had been read by somebody, and by which poll."""
    found: FirstReads = {}
    for operation in history:
        if operation.complete is None:
            continue
        for topic, partition, records in operation.polls:
            for _, value in records:
                before = found.get((topic, partition, value))
                if before is None or operation.complete < before[0]:
                    found[topic, partition, value] = operation.complete, operation
    return found
