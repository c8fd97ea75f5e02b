"""Decisions of drivers, their responses, and the parts that were reported as prepared."""

from dataclasses import dataclass, field
from typing import Final

from verification.simulation.transactions.control_calls import Request
from verification.simulation.transactions.history import Claimed, TransactionHistory

PREPARED: Final = "what is prepared waits for its decision"
ONCE: Final = "a batch id counts once"
TOGETHER: Final = "members are seen together or not at all"


@dataclass(slots=True, eq=False)
class Decision:
    """One try to commit a batch: these parts, under its batch id."""

    transactional_id: str
    batch_id: str
    #: By member; the owner's own part has no name.
    parts: dict[str, Claimed]
    asked: bool = False
    #: A commit under the batch id was reported as done, with these parts named.
    told: bool = False


@dataclass(slots=True)
class _Waiting:
    """The parts of one transactional id that are known to be prepared."""

    names: set[str] = field(default_factory=set)
    #: Requests that decide whatever there is when they come.
    sweeps: list[Request] = field(default_factory=list)
    #: Requests that take the id.
    takes: list[Request] = field(default_factory=list)


class MemberHistory:
    """The history of one run's members."""

    def __init__(self, told: TransactionHistory) -> None:
        """Nothing was asked yet."""
        self._told = told
        self._ids: dict[str, _Waiting] = {}
        self.decisions: list[Decision] = []

    def _of(self, transactional_id: str) -> _Waiting:
        return self._ids.setdefault(transactional_id, _Waiting())

    def ids(self) -> set[str]:
        """The transactional ids that were asked for."""
        return set(self._ids)

    # -- what is prepared

    def lost(self, transactional_id: str) -> None:
        """The broker was made to end members that were prepared: nothing is known of any."""
        self._of(transactional_id).names.clear()

    def prepared(self, transactional_id: str, member: str, since: float) -> None:
        """A member was reported as prepared, requested since then (trio's clock): unless a sweep may have met it."""
        waiting = self._of(transactional_id)
        if all(one.over_at is not None and one.over_at < since for one in waiting.sweeps):
            waiting.names.add(member)

    def decides(self, transactional_id: str, names: set[str]) -> None:
        """A decision about these members is asked for."""
        self._of(transactional_id).names -= names

    def sweeps(self, transactional_id: str) -> list[Request]:
        """A decision about everything is asked for; where its requests are to be noted."""
        self._of(transactional_id).names.clear()
        return self._of(transactional_id).sweeps

    def waits(self, transactional_id: str) -> set[str]:
        """Members that are prepared for certain, and were decided by nobody."""
        return set(self._of(transactional_id).names)

    # -- who has an id

    def takes(self, transactional_id: str) -> list[Request]:
        """The list for requests that take the id."""
        return self._of(transactional_id).takes

    def is_replaced(self, transactional_id: str, mine: Request) -> bool:
        """Whether another request may have taken the id after this one."""
        others = (one for one in self._of(transactional_id).takes if one is not mine)
        return any(one.over_at is None or one.over_at >= mine.sent_at for one in others)

    # -- decisions

    def asks(self, decision: Decision) -> None:
        """A commit is asked for."""
        if not decision.asked:
            decision.asked = True
            self.decisions.append(decision)
        for claimed in decision.parts.values():
            self._told.asks(claimed)

    def done(self, decision: Decision) -> None:
        """Records a commit as reported; of several tries nobody knows which."""
        decision.told = True
        if not any(one is not decision and self._same(one, decision) for one in self.decisions):
            for claimed in decision.parts.values():
                claimed.told = True

    def _same(self, one: Decision, other: Decision) -> bool:
        return (one.transactional_id, one.batch_id) == (other.transactional_id, other.batch_id)
