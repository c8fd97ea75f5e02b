"""How much memory what is in doubt may take, and what goes first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.dedup import doubt_memory as module
from kproxy.dedup.digest import Digest
from kproxy.dedup.doubt_memory import MAX_BYTES, MAX_PEER_BYTES, STEP_BYTES, allowed
from kproxy.dedup.identity import Identity
from kproxy.dedup.retry_ledger import LEDGER_BYTES, ReadBack
from tests.dedup.talk import KEY, Talk, World

FRIEND = Identity("", "friend", "there")


def bounds(monkeypatch: pytest.MonkeyPatch, peer: int, everyone: int = MAX_BYTES) -> None:
    monkeypatch.setattr(module, "MAX_PEER_BYTES", peer)
    monkeypatch.setattr(module, "MAX_BYTES", everyone)


def left_by(world: World, name: str, text: str, *, host: str = "here", time: int = 7) -> Talk:
    """What a client had sent when its connection broke; its records are read back."""
    talk = world.connect(Identity("", name, host))
    talk.did(text, time=time)
    talk.close(reset=True)
    need = world.connect(Identity("", name, host)).prerequisite()
    if need is not None:
        world.clear(talk, need)
    return talk


@given(st.lists(st.integers(0, 1 << 28), max_size=50))
def test_all_together_stay_below_the_bound_and_who_takes_little_is_left_alone(sizes: list[int]) -> None:
    limit = allowed(sizes)
    assert limit <= MAX_PEER_BYTES
    assert sum(min(size, limit) for size in sizes) <= MAX_BYTES
    assert all(size <= limit for size in sizes if size <= MAX_BYTES // len(sizes) and size <= MAX_PEER_BYTES)


def test_records_are_forgotten_before_batches_and_read_back_when_they_are_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds(monkeypatch, LEDGER_BYTES + 2700)
    world = World()
    first = left_by(world, "one", "abcdefghij")
    (entry,) = first.member.ledger.entries[KEY]
    assert entry.digests
    for letter in "xy":
        left_by(world, "one", letter)
    assert world.ledgers.sweep(world.now) == 0
    assert entry.digests is None
    again = world.connect(first.member.ledger.identity)
    assert isinstance(again.prerequisite(), ReadBack)
    again.did("abcdefghij")
    assert world.text() == "abcdefghijxy"


def test_of_a_part_only_what_is_left_is_read_back() -> None:
    world = World()
    talk = left_by(world, "one", "abc")
    (entry,) = talk.member.ledger.entries[KEY]
    entry.part([1])
    assert entry.forget_records() > 0
    world.clear(talk, ReadBack([entry]))
    assert list(entry.offsets) == [0, 2]


def test_of_a_part_the_offsets_may_take_more_than_the_records() -> None:
    world = World()
    talk = left_by(world, "one", "abcdefghijklmnopqrstuvwxyz")
    (entry,) = talk.member.ledger.entries[KEY]
    entry.part([1])
    assert entry.forget_records() == 0
    assert len(entry.offsets) == 25


def test_what_the_log_does_not_have_is_not_forgotten() -> None:
    world = World()
    talk = left_by(world, "one", "a")
    (entry,) = talk.member.ledger.entries[KEY]
    assert entry.digests is not None
    entry.taken_as(0, Digest(entry.digests[0][0], 9))
    assert entry.forget_records() == 0
    assert entry.digests[0][1] == 9


def test_a_request_that_waits_keeps_what_it_is_compared_with(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, LEDGER_BYTES + 1000)
    world = World()
    (entry,) = left_by(world, "one", "abcdefghij").member.ledger.entries[KEY]
    waiting = world.connect(Identity("", "one", "here"))
    waiting.member.waits([KEY])
    assert world.ledgers.sweep(world.now) == 1, "it is dropped, lest the request wait for ever"
    assert entry.digests


def test_who_leaves_too_much_in_doubt_loses_its_own_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, 3 * (LEDGER_BYTES + 1000))
    world = World()
    friend = left_by(world, "friend", "z", host="there")
    for name in ("one", "two", "three", "four"):
        left_by(world, name, "a")
    assert world.ledgers.sweep(world.now) == 2
    assert [identity.client_id for identity in world.ledgers.counts()] == ["friend", "three", "four"]
    assert friend.member.ledger.count == 1


def test_the_order_of_refused_records_goes_before_any_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, LEDGER_BYTES + 2000)
    world = World()
    talk = left_by(world, "one", "a")
    ledger = talk.member.ledger
    again = world.connect(ledger.identity, software="librdkafka")
    digests = [Digest(bytes([number]) * 16, 7) for number in range(100)]
    ledger.refuse_in_order(again.member, KEY, digests, world.now)
    assert ledger.awaits(KEY)
    assert world.ledgers.sweep(world.now) == 0
    assert not ledger.awaits(KEY)
    assert ledger.count == 1


def test_growth_is_noticed_at_the_next_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, 1)
    world = World()
    left_by(world, "one", "a")
    world.ledgers.grew(STEP_BYTES)
    world.connect(FRIEND)
    assert not world.ledgers.counts()
    assert world.ledgers.sweep(world.now) == 1, "told with the next sweep"
