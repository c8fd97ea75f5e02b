"""The limit of a principal's transactional ids at this kproxy, since each takes memory until it expires."""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

#: An id counts once more for each so many characters.
_CHARACTERS: Final = 256
#: An id of which nothing is known so long after it was asked for was not given to its client, in seconds.
_GRACE_S: Final = 900.0


class _Holder(NamedTuple):
    principal: str
    #: When it was asked for last, in seconds.
    at: float


class IdLimit:
    """The ids that were asked for at this kproxy, by the principal that asked for each last."""

    def __init__(self, most: int) -> None:
        """``most``: ids of one principal."""
        self._most = most
        self._holders: dict[str, _Holder] = {}
        self._counts: Counter[str] = Counter()
        #: Principals that were refused one, and may not have another yet.
        self._refused: set[str] = set()

    def admits(self, transactional_id: str, principal: str, now: float, *, is_known: bool) -> bool:
        """Whether a principal may have an id at ``now`` (seconds); then it has it.

        ``is_known``: it exists already. Then it takes no more memory, and any principal may have it.
        """
        holder = self._holders.get(transactional_id)
        if holder is None and not is_known and self._counts[principal] + _weight(transactional_id) > self._most:
            return False
        if holder is None or holder.principal != principal:
            self.forget(transactional_id)
            self._counts[principal] += _weight(transactional_id)
        self._holders[transactional_id] = _Holder(principal, now)
        return True

    def is_first_refusal(self, principal: str) -> bool:
        """Whether a principal is refused an id for the first time since it could have one."""
        is_first = principal not in self._refused
        self._refused.add(principal)
        return is_first

    def forget(self, transactional_id: str) -> None:
        """Nobody has the id any more."""
        holder = self._holders.pop(transactional_id, None)
        if holder is not None:
            self._counts[holder.principal] -= _weight(transactional_id)
            if not self._counts[holder.principal]:
                del self._counts[holder.principal]

    def sweep(self, exists: Callable[[str], bool], now: float) -> None:
        """Forgets the ids that have expired."""
        for name in [name for name, holder in self._holders.items() if now > holder.at + _GRACE_S]:
            if not exists(name):
                self.forget(name)
        self._refused = {one for one in self._refused if self._counts[one] >= self._most}


def _weight(transactional_id: str) -> int:
    return 1 + len(transactional_id) // _CHARACTERS
