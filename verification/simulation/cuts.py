"""The cuts of a plan of producing clients: fewer clients, faults, requests, partitions, records."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from verification.simulation.plan import ClientPlan, Plan, Send
from verification.simulation.shrinking import Shrinker
from verification.simulation.world import Outcome, run

_Batches: TypeAlias = tuple[tuple[int, tuple[bytes, ...]], ...]


def shrink(outcome: Outcome) -> Outcome:
    """The same broken invariant with as few faults, clients, requests and records as can be found."""
    return Shrinker[Plan](outcome, run).shrink(_cut)


def _cut(shrinker: Shrinker[Plan]) -> None:
    shrinker.drop(lambda plan: plan.clients, lambda plan, kept: replace(plan, clients=kept))
    shrinker.drop(lambda plan: plan.faults, lambda plan, kept: replace(plan, faults=kept))
    for number in [client.number for client in shrinker.plan.clients]:
        _drop_sends(shrinker, number)
        _drop_batches(shrinker, number)


def _drop_sends(shrinker: Shrinker[Plan], number: int) -> None:
    """Leaves out requests; those after them are sent when they were before."""
    due = 0.0
    times = {}
    for send in _client(shrinker.plan, number).sends:
        due += send.gap
        times[send.batches] = due

    def put(plan: Plan, kept: tuple[Send, ...]) -> Plan:
        befores = [0.0, *(times[send.batches] for send in kept)]
        timed = [replace(send, gap=times[send.batches] - before) for send, before in zip(kept, befores, strict=False)]
        return _with(plan, replace(_client(plan, number), sends=tuple(timed)))

    shrinker.drop(lambda plan: _client(plan, number).sends, put)


def _drop_batches(shrinker: Shrinker[Plan], number: int) -> None:
    """Leaves out partitions, and records but the first of each batch."""
    for nth in range(len(_client(shrinker.plan, number).sends)):
        for smaller in _smaller(_client(shrinker.plan, number).sends[nth].batches):
            client = _client(shrinker.plan, number)
            sends = list(client.sends)
            sends[nth] = replace(sends[nth], batches=smaller)
            if shrinker.fails(_with(shrinker.plan, replace(client, sends=tuple(sends)))):
                break


def _smaller(batches: _Batches) -> Iterator[_Batches]:
    if len(batches) > 1:
        for batch in batches:
            yield ((batch[0], batch[1][:1]),)
            yield (batch,)
    if any(len(values) > 1 for _, values in batches):
        yield tuple((index, values[:1]) for index, values in batches)


def _client(plan: Plan, number: int) -> ClientPlan:
    return next(client for client in plan.clients if client.number == number)


def _with(plan: Plan, changed: ClientPlan) -> Plan:
    clients = tuple(changed if client.number == changed.number else client for client in plan.clients)
    return replace(plan, clients=clients)
