"""The invariants of decisions over several members, against what a reader of committed data is shown at last."""

from collections.abc import Iterator, Mapping

from verification.simulation.transactions.invariants import OUTCOME, Findings, Shown
from verification.simulation.transactions.member_history import ONCE, TOGETHER, Decision, MemberHistory


def broken(history: MemberHistory, committed: Shown) -> Findings:
    """The invariants that are broken, and how: the gravest first."""
    shown = {(place, value) for place, log in committed.items() for value in log.values()}
    batches: dict[tuple[str, str], list[Decision]] = {}
    for decision in history.decisions:
        batches.setdefault((decision.transactional_id, decision.batch_id), []).append(decision)
    for (_, batch_id), decisions in batches.items():
        seen = [decision for decision in decisions if _some(decision, shown)]
        if len(seen) > 1:
            yield ONCE, f"{batch_id}: {' and '.join(map(_text, seen))}"
        if any(one.told for one in decisions) and not seen and all(_values(one) for one in decisions):
            yield (
                OUTCOME,
                f"{batch_id}: told to be committed, and nothing of {' or '.join(map(_text, decisions))} is shown",
            )
        for decision in seen:
            yield from _torn(decision, shown)


def _torn(decision: Decision, shown: set[tuple[int, bytes]]) -> Findings:
    missing = [value.decode() for place, value in _values(decision) if (place, value) not in shown]
    if missing:
        yield TOGETHER, f"{_text(decision)}: without {' '.join(missing)}"


def _some(decision: Decision, shown: set[tuple[int, bytes]]) -> bool:
    return any(row in shown for row in _values(decision))


def _values(decision: Decision) -> list[tuple[int, bytes]]:
    return list(_rows([claimed.values for claimed in decision.parts.values()]))


def _rows(parts: list[dict[int, list[bytes]]]) -> Iterator[tuple[int, bytes]]:
    rows: list[Mapping[int, list[bytes]]] = list(parts)
    for values in rows:
        for place, some in values.items():
            yield from ((place, value) for value in some)


def _text(decision: Decision) -> str:
    return f"{decision.batch_id} of {'+'.join(claimed.name for claimed in decision.parts.values())}"
