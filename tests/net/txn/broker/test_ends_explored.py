"""Every order in which a decision, its EndTxns and the next member of the same id can come, on the broker's own states.

One id of the broker's, three members one after the other. What is sent may come at any later time, and more than once:
EndTxn, and requests that add partitions.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field

import pytest

from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.transactional_ids import TransactionalId, TxnState


@dataclass
class Member:
    """As the log knows it; ``result``: how its data ended at the broker."""

    epoch: int
    wrote: bool = False
    prepared: bool = False
    decided: bool | None = None
    told: bool = False
    ended: bool = False
    result: bool | None = None


@dataclass
class World:
    """The broker's id, the members, and EndTxns in flight (member, decision)."""

    level: int
    most: int = 3
    #: Whether requests that add partitions may come late.
    late: bool = False
    #: A flaw: the id is used again when the decision is in the log.
    hasty: bool = False
    #: A flaw: the id rests as its last member leaves it.
    unfenced: bool = False
    broker: TransactionalId = field(default_factory=lambda: TransactionalId(7, 0))
    members: list[Member] = field(default_factory=list)
    sent: frozenset[tuple[int, bool]] = frozenset()
    #: Whether the epoch has risen since the last member ended.
    is_fenced: bool = True

    def key(self) -> str:
        return repr((self.broker, self.members, sorted(self.sent), self.is_fenced))

    # -- steps

    def steps(self) -> Iterator["World"]:
        """All worlds that may come next."""
        if self._is_free() and len(self.members) < self.most:
            yield self._then("begin")
        if self.late and self._is_free() and not (self.is_fenced or self.unfenced):
            yield self._then("fence")
        for nth, member in enumerate(self.members):
            yield from self._of_an_open(nth, member)
            if member.decided is not None and not member.ended:
                yield self._then("send", nth)
                if member.told:
                    yield self._then("note", nth)
        for nth, committed in self.sent:
            yield self._then("arrive", nth, committed)

    def _of_an_open(self, nth: int, member: Member) -> Iterator["World"]:
        if self.late and member.told:
            yield self._then("add", nth)
        if not member.prepared:  # its kproxy may not know yet that it is aborted
            yield self._then("write", nth)
        if member.decided is not None:
            return
        if member.wrote and not member.prepared:
            yield self._then("prepare", nth)
        yield self._then("decide", nth, False)  # it may be a claim, or a decision that does not name it
        if member.prepared and self._may_commit(member):
            yield self._then("decide", nth, True)

    def _is_free(self) -> bool:
        return all(member.ended or (self.hasty and member.decided is not None) for member in self.members)

    def _may_commit(self, member: Member) -> bool:
        """The broker is asked before."""
        return self.broker.state is TxnState.ONGOING and self.broker.epoch == member.epoch

    def _then(self, what: str, *details: int | bool) -> "World":
        made = deepcopy(self)
        getattr(made, f"_{what}")(*details)
        return made

    def _begin(self) -> None:
        self._fence()
        self.members.append(Member(self.broker.epoch))

    def _fence(self) -> None:
        if self.broker.state is TxnState.ONGOING:  # the broker aborts what is open
            self._ends(self.broker.epoch, committed=False)
            self.broker.fence()
            self.broker.complete()
        assert self.broker.renew(None) is ErrorCode.NONE
        self.is_fenced = True

    def _add(self, nth: int) -> None:
        """A request that adds a partition arrives, again or late."""
        if self.broker.check(7, self.members[nth].epoch) is ErrorCode.NONE:
            self.broker.join(0)
        rests = all(member.ended for member in self.members) and (self.is_fenced or self.unfenced)
        assert not (rests and self.broker.state is TxnState.ONGOING), "open, and nobody ends it"

    def _write(self, nth: int) -> None:
        member = self.members[nth]
        if self.broker.check(7, member.epoch) is ErrorCode.NONE and self.broker.join(0) is ErrorCode.NONE:
            member.wrote = True

    def _prepare(self, nth: int) -> None:
        self.members[nth].prepared = True

    def _decide(self, nth: int, committed: bool) -> None:
        self.members[nth].decided = committed

    def _send(self, nth: int) -> None:
        decided = self.members[nth].decided
        assert decided is not None
        self.sent |= {(nth, decided)}

    def _arrive(self, nth: int, committed: bool) -> None:
        member, was = self.members[nth], self.broker.state
        end = self.broker.end if self.level == 1 else self.broker.end_and_raise
        epoch = self.broker.epoch
        error = end(7, member.epoch, committed)
        if self.broker.prepared:
            if was is TxnState.ONGOING:
                self._ends(epoch, committed=committed)
            self.broker.complete()
        if error is ErrorCode.NONE or not committed:
            member.told = True  # what is aborted already need not be aborted
        elif not member.ended:
            raise AssertionError(f"member {nth} is torn: {error.name}")

    def _note(self, nth: int) -> None:
        self.members[nth].ended, self.is_fenced = True, self.level > 1

    def _ends(self, epoch: int, *, committed: bool) -> None:
        """What the open transaction holds ends so: each record of the member whose epoch it is."""
        (member,) = [member for member in self.members if member.epoch == epoch]
        if member.ended:
            return  # partitions that were added late, without data
        if member.prepared:
            assert member.decided is committed, "what is prepared ends as nobody has decided"
        assert not committed or member.decided, "committed without a decision"
        member.result = committed if member.result is None else member.result
        assert member.result is committed, "in part"


def explore(world: World) -> int:
    """How many worlds there are."""
    seen, fresh = {world.key()}, [world]
    while fresh:
        for following in fresh.pop().steps():
            key = following.key()
            if key not in seen:
                seen.add(key)
                fresh.append(following)
    return len(seen)


@pytest.mark.parametrize("level", [1, 2], ids=["TV1", "TV2"])
def test_no_order_tears_a_member_or_ends_another_one(level: int) -> None:
    assert explore(World(level)) >= 400


@pytest.mark.parametrize("level", [1, 2], ids=["TV1", "TV2"])
def test_partitions_that_are_added_late_neither_tear_a_member_nor_stay_open(level: int) -> None:
    assert explore(World(level, most=2, late=True)) >= 90


@pytest.mark.parametrize("level", [1, 2], ids=["TV1", "TV2"])
def test_an_id_that_is_used_again_too_soon_is_found_out(level: int) -> None:
    with pytest.raises(AssertionError, match=r"torn|nobody has decided"):
        explore(World(level, hasty=True))


def test_an_id_that_rests_under_the_epoch_of_its_last_member_is_found_out() -> None:
    with pytest.raises(AssertionError, match="nobody ends it"):
        explore(World(1, most=2, late=True, unfenced=True))
