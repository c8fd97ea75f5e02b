"""The log of one transactional id, and what every reader makes of it."""

from typing import NamedTuple

#: No identity, no claim, no producer.
NONE = -1


class Part(NamedTuple):
    """An epoch of kproxy's: the claim's block, and the number in it."""

    block: int
    number: int


class Claim(NamedTuple):
    """Takes the next block. ``client``: the identity that it names; NONE: made for the producer that has the id."""

    nonce: int
    block: int
    client: int
    resumed: int
    #: The producer that asks.
    by: int


class Begun(NamedTuple):
    """A transaction has data."""

    nonce: int
    part: Part


class Decision(NamedTuple):
    """Commits or aborts a part, and gives its client the identity ``following``."""

    nonce: int
    part: Part
    following: int
    committed: bool


class Expiry(NamedTuple):
    """The id was not used for long."""

    nonce: int


Record = Claim | Begun | Decision | Expiry


class Last(NamedTuple):
    """The last decision, or the claim that aborted what was open."""

    part: Part
    client: int
    following: int
    committed: bool
    by_claim: bool


class View(NamedTuple):
    """What the records say."""

    nonce: int = NONE
    block: int = NONE
    #: The identity after the claim, and now.
    given: int = NONE
    client: int = NONE
    resumed: int = NONE
    #: Whether the claim's own identity counts.
    named: bool = False
    ongoing: Part | None = None
    last: Last | None = None
    expired: bool = False
    decided: frozenset[tuple[Part, bool]] = frozenset()

    def verdict(self, part: Part) -> bool | None:
        """Committed, aborted, or (None) undecided."""
        if (part, True) in self.decided:
            return True
        return False if (part, False) in self.decided or part.block < self.block else None


def step(view: View, record: Record, rules: dict[str, str]) -> View:
    """The view after one more record."""
    if isinstance(record, Claim):
        return _claim(view, record, rules)
    if record.nonce != view.nonce or view.expired:
        return view
    if isinstance(record, Expiry):
        if view.ongoing is not None:
            return view
        return view._replace(expired=True, last=None if rules["expiry"] == "forget" else view.last)
    if view.verdict(record.part) is not None:
        return view
    if isinstance(record, Begun):
        return view._replace(ongoing=record.part)
    last = Last(record.part, view.client, record.following, record.committed, by_claim=False)
    ongoing = None if view.ongoing == record.part else view.ongoing
    decided = view.decided | {(record.part, record.committed)}
    return view._replace(client=record.following, last=last, ongoing=ongoing, decided=decided)


def _claim(view: View, record: Claim, rules: dict[str, str]) -> View:
    if record.block != view.block + 1:
        return view
    named = record.client > NONE and (rules["claim"] == "any" or record.client > view.client)
    client = record.client if named else view.client
    resumed = record.resumed
    if not named:
        resumed = view.resumed if view.given == view.client else NONE
    last = view.last
    if view.ongoing is not None:
        last = Last(view.ongoing, view.client, client, committed=False, by_claim=True)
    return View(record.nonce, record.block, client, client, resumed, named, None, last, False, view.decided)


def read(log: tuple[Record, ...], rules: dict[str, str]) -> View:
    """What all records say."""
    view = View()
    for record in log:
        view = step(view, record, rules)
    return view
