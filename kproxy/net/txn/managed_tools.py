"""The outside of transactions that kproxy begins for clients (``kproxy.txn.procedures.managed_outside``), performed."""

from collections.abc import Sequence
from typing import Final

from kproxy.dedup.repeats import ReceivedBatch, Repeats
from kproxy.net.txn.coordinator import Coordinator
from kproxy.net.txn.reports import report
from kproxy.txn.procedures.managed_outside import ManagedTools
from kproxy.txn.procedures.outside import Time
from kproxy.txn.requests import ClientBatch

#: A batch that is larger when it is unpacked is not compared with what came before.
_MOST_UNPACKED: Final = 1 << 26


class ComparedBatches:
    """The ``RepeatedRecords`` of one client, compared by the rules of ``kproxy.dedup``."""

    def __init__(self, *, at_any_time: bool) -> None:
        """``at_any_time``: the client gives a record a new timestamp when it sends it again."""
        self._repeats = Repeats(_MOST_UNPACKED, at_any_time=at_any_time)

    def came(self, connection: int, batches: Sequence[ClientBatch], arrival_ms: int) -> bool:
        found = (ReceivedBatch(batch.topic, batch.partition, batch.batch, arrival_ms) for batch in batches)
        return self._repeats.came(connection, found)


def managed_tools(coordinator: Coordinator, time: Time) -> ManagedTools:
    """The tools of the transactions that this instance begins."""
    return ManagedTools(
        requests=coordinator,
        repeated=lambda client_id: ComparedBatches(at_any_time=coordinator.renews_timestamps(client_id)),
        instance_id=coordinator.instance_id,
        time=time,
        report=report,
    )
