"""All checks together."""

from collections.abc import Iterable

from kproxy.testing.history.anomaly import Anomaly
from kproxy.testing.history.cycles import check_cycles
from kproxy.testing.history.derived import check_derived
from kproxy.testing.history.fencing import check_fenced, check_late_ends
from kproxy.testing.history.isolation import check_isolation
from kproxy.testing.history.logs import build_logs
from kproxy.testing.history.operations import Operation
from kproxy.testing.history.polls import check_polls
from kproxy.testing.history.sends import check_acknowledgements, check_offsets, check_order, check_values
from kproxy.testing.history.stable import check_stable_offsets, check_stuck
from kproxy.testing.history.transactions import check_whole


def check(history: Iterable[Operation]) -> list[Anomaly]:
    """Name every anomaly of a history, by number; its operations may come in any order. O(n log n) in its records.

    If any operation is ``final``, only final ones count as having read: give it all partitions, whole. A value that
    several operations sent to one partition is one of equal records; it is counted (17) instead of looked for. Polls of
    ``uncommitted`` operations are compared with the others (16) and not used for anything else.
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
        *check_order(operations, logs),
        *check_acknowledgements(operations),
    ]
    return sorted(found, key=lambda anomaly: (anomaly.kind.number, anomaly.kind.title, anomaly.topic, anomaly.offsets))
