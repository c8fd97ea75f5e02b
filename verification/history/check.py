"""All checks together."""

from collections.abc import Callable, Iterable

from verification.history.anomaly import Anomaly
from verification.history.cycles import check_cycles
from verification.history.derived import check_derived
from verification.history.fencing import check_fenced, check_late_ends
from verification.history.isolation import check_isolation
from verification.history.logs import build_logs
from verification.history.operations import Operation
from verification.history.polls import check_polls
from verification.history.sends import check_acknowledgements, check_offsets, check_order, check_values
from verification.history.stable import check_stable_offsets, check_stuck
from verification.history.transactions import check_whole


def check(history: Iterable[Operation], changes_order: Callable[[str], bool] = lambda _: False) -> list[Anomaly]:
    """Name every anomaly of a history, by number; its operations may come in any order. O(n log n) in its records.

    If any operation is ``final``, only final ones count as having read: give it all partitions, whole. A value that
    several operations sent to one partition is one of equal records; it is counted (17) instead of looked for. Polls of
    ``uncommitted`` operations are compared with the others (16) and not used for anything else. ``changes_order``:
    whether a process is a client that itself sends records in another order than it was given them.
    """
    everything = list(history)
    operations = [operation for operation in everything if not operation.uncommitted]
    logs = build_logs(operations)
    found = [
        *check_values(logs),
        *check_offsets(logs),
        *check_polls(operations, logs),
        *check_whole(operations, logs),
        *check_cycles(operations, logs),
        *check_derived(operations, logs),
        *check_fenced(operations, logs),
        *check_late_ends(operations, logs),
        *check_isolation(everything, logs),
        *check_stable_offsets(operations, logs),
        *check_stuck(operations),
        *check_order([operation for operation in operations if not changes_order(operation.process)], logs),
        *check_acknowledgements(operations),
    ]
    return sorted(found, key=lambda anomaly: (anomaly.kind.number, anomaly.kind.title, anomaly.topic, anomaly.offsets))
