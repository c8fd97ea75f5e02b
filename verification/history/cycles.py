"""Anomalies of transactions that read: their own records, or each other's in a circle."""

from collections.abc import Iterator, Mapping, Sequence

from verification.history.anomaly import Anomaly, AnomalyKind
from verification.history.logs import PartitionLog, TopicPartition
from verification.history.operations import Kind, Operation, Outcome

_WITNESSES = 3


def check_cycles(history: Sequence[Operation], logs: Mapping[TopicPartition, PartitionLog]) -> Iterator[Anomaly]:
    """Anomalies 6 (a transaction polls its own record) and 7 (G1c: a cycle of edges from writer to reader alone).

    Aborted transactions are left out: what is read of them is anomaly 5. Equal records have no certain writer.
    """
    transactions = [found for found in history if found.kind is Kind.TXN and found.outcome is not Outcome.FAIL]
    index = {id(transaction): at for at, transaction in enumerate(transactions)}
    writers: list[set[int]] = []
    for at, transaction in enumerate(transactions):
        found = {index[id(writer)] for writer in _read_from(transaction, logs) if id(writer) in index}
        if at in found:
            place = transaction.polls[0][:2]
            detail = f"a transaction of {transaction.process} polled a record of its own"
            yield Anomaly(AnomalyKind.PRECOMMITTED_READ, *place, detail, operations=(transaction,))
        writers.append(found - {at})
    for cycle in _components(writers):
        members = [transactions[at] for at in sorted(cycle)]
        detail = f"{len(members)} transactions read each other's records: {', '.join(one.process for one in members)}"
        place = members[0].polls[0][:2]
        yield Anomaly(AnomalyKind.G1C, *place, detail, operations=tuple(members[:_WITNESSES]))


def _read_from(transaction: Operation, logs: Mapping[TopicPartition, PartitionLog]) -> Iterator[Operation]:
    for topic, partition, records in transaction.polls:
        for _, value in records:
            writers = logs[topic, partition].writers.get(value, ())
            if len(writers) == 1:
                yield writers[0]


def _components(edges: Sequence[set[int]]) -> Iterator[set[int]]:
    """Yield the strongly connected components of two nodes and more (Tarjan's algorithm, without recursion)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    waiting: set[int] = set()
    for root in range(len(edges)):
        if root in order:
            continue
        path = [(root, iter(edges[root]))]
        while path:
            node, targets = path[-1]
            if node not in order:
                order[node] = low[node] = len(order)
                stack.append(node)
                waiting.add(node)
            target = next((target for target in targets if target not in order or target in waiting), None)
            if target is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == order[node]:
                    yield from _cut(stack, waiting, node)
            elif target in order:
                low[node] = min(low[node], order[target])
            else:
                path.append((target, iter(edges[target])))


def _cut(stack: list[int], waiting: set[int], root: int) -> Iterator[set[int]]:
    at = stack.index(root)
    component = set(stack[at:])
    del stack[at:]
    waiting -= component
    if len(component) > 1:
        yield component
