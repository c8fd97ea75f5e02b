"""Which ledgers are forgotten, which rest, and that one that is rebuilt is the one that was put to rest."""

from array import array
from collections.abc import Callable
from dataclasses import fields, replace
from math import inf
from typing import Any

import pytest

from kproxy.dedup import doubt_memory, retry_ledgers
from kproxy.dedup.awaited_records import AwaitedRecords
from kproxy.dedup.digest import Digest, Digests
from kproxy.dedup.identity import Identity
from kproxy.dedup.lanes import TrackKey
from kproxy.dedup.listed import InDoubt, ListedBatch
from kproxy.dedup.origin import ELSEWHERE, Origin
from kproxy.dedup.producer_connection import Suspect
from kproxy.dedup.resting_ledger import EMPTY, MOST_BYTES, PLAIN, REST_AFTER_S, RESTING_BYTES, packed
from kproxy.dedup.retry_ledger import LEDGER_BYTES, LastUse, RetryLedger
from kproxy.dedup.unconfirmed import Stamp, UnconfirmedBatch
from tests.dedup.talk import KEY, OTHER, World
from tests.dedup.wires import ONE, RULES

#: Attributes of a ledger that follow from what it is made of, or are of its connections.
DERIVED = {
    "outside",
    "identity",
    "rules",
    "waits",
    "_by_broker",
    "_checks",
    "_indexes",
    "_taken_lists",
    "entries",
    "_uses",
}


def left(world: World, *texts: str, name: str = "one", keys: tuple[TrackKey, ...] = (KEY,)) -> RetryLedger:
    """The ledger of a client whose connection broke after these batches."""
    talk = world.connect(Identity("", name, "localhost"), software="librdkafka")
    for text in texts:
        talk.did(text, keys=keys)
    talk.close(reset=True)
    return talk.member.ledger


def facts(ledger: RetryLedger) -> list[Any]:
    """All that it knows, with which connection each part is of."""
    numbers: dict[Origin, int] = {}

    def of(one: Any) -> Any:
        if isinstance(one, Origin):
            if one is ELSEWHERE:
                return "elsewhere"
            number = numbers.setdefault(one, len(numbers))
            return number, [getattr(one, field.name) for field in fields(one)]
        if isinstance(one, UnconfirmedBatch | Stamp | LastUse):
            return [of(getattr(one, field.name)) for field in fields(one) if field.name != "_contents"]
        if isinstance(one, dict):
            return [(key, of(value)) for key, value in one.items()]
        return [of(each) for each in one] if isinstance(one, list) else one

    names = [*PLAIN, *EMPTY, "identity", "rules", "waits", "_taken_lists", "entries", "_uses"]
    return [(name, of(getattr(ledger, name))) for name in names]


def test_each_attribute_of_a_ledger_is_kept_or_empty_or_follows_from_others() -> None:
    assert {*PLAIN, *EMPTY, *DERIVED} == vars(left(World(), "a")).keys()


def test_what_is_rebuilt_knows_what_was_known() -> None:
    world = World()
    ledger = left(world, "ab", "c", keys=(KEY, OTHER))
    world.clear(world.connect(), world.connect().prerequisite())  # type: ignore[arg-type]  # it is a ReadBack
    first, second = ledger.entries[KEY]
    first.part([1])
    second.only, second.digests, second.offsets = frozenset({3}), None, array("q")
    second.beside, second.origin, second.repeated_from = frozenset({KEY, OTHER}), ELSEWHERE, inf
    second.late_here = second.sure = second.answered = True
    ledger.warned, ledger._outlived_to, ledger._recent_at = True, {7: 8}, {7: 1.5}
    ledger._recovered_to = {KEY: {7: 3}}
    for name in EMPTY:
        getattr(ledger, name).clear()
    before = facts(ledger)
    world.ledgers.rest(inf)
    assert world.ledgers.rests(ONE)
    rebuilt = world.ledgers.of(ONE)
    assert rebuilt is not None
    assert rebuilt is not ledger
    assert facts(rebuilt) == before
    assert not world.ledgers.rests(ONE)


def test_all_fields_of_what_an_entry_is_made_of_are_of_types_that_can_be_kept() -> None:
    world = World()
    left(world, "a")
    ledger = world.ledgers.of(ONE)
    assert ledger is not None
    (entry,) = ledger.entries[KEY]
    for field in fields(UnconfirmedBatch):
        value = getattr(entry, field.name)
        if isinstance(value, bool):
            setattr(entry, field.name, not value)
        elif isinstance(value, int | float):
            setattr(entry, field.name, value + 5)
    entry.timed_only = False  # such a batch keeps a ledger from its rest
    before = facts(ledger)
    world.ledgers.rest(inf)
    rebuilt = world.ledgers.of(ONE)
    assert rebuilt is not None
    assert facts(rebuilt) == before


def _suspected(ledger: RetryLedger) -> None:
    ledger._suspects[KEY] = [(Suspect(1, 0, 1), 0.0)]


def _found(ledger: RetryLedger) -> None:
    ledger.entries[KEY][0].timed_only = True


def _awaited(ledger: RetryLedger) -> None:
    awaited = ledger._awaited_records[KEY] = AwaitedRecords()
    awaited.refuse([Digest(b"x" * 16, 7)], 0.0)


def _large(ledger: RetryLedger) -> None:
    ledger.entries[KEY][0].recall(Digests.of([Digest(b"x" * 16, 7)] * 70), [1] * 70)


def _nothing_left(ledger: RetryLedger) -> None:
    ledger.forget(ledger.entries[KEY][0])


@pytest.mark.parametrize("change", [_suspected, _found, _awaited, _large, _nothing_left])
def test_a_ledger_of_which_anything_else_is_left_does_not_rest(change: Callable[[RetryLedger], None]) -> None:
    ledger = left(World(), "a")
    assert packed(ledger, inf) is not None
    change(ledger)
    assert packed(ledger, inf) is None


def test_nor_does_one_of_a_connection_that_is_open_or_still_read_nor_one_that_is_worked_with() -> None:
    world = World()
    talk = world.connect()
    talk.did("a")
    world.ledgers.rest(inf)
    assert not world.ledgers.rests(ONE)
    talk.wire.reset = True
    talk.member.end(world.now)
    world.ledgers.rest(inf)
    assert not world.ledgers.rests(ONE)
    talk.member.drained()
    world.ledgers.rest(inf, {talk.member.ledger})
    assert not world.ledgers.rests(ONE)
    world.ledgers.rest(world.now + REST_AFTER_S / 2)
    assert not world.ledgers.rests(ONE), "most clients reconnect at once"
    world.ledgers.rest(world.now + REST_AFTER_S)
    assert world.ledgers.rests(ONE)


def test_only_so_many_are_put_to_rest_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_ledgers, "MOST_PACKED", 2)
    world, names = World(), ("one", "two", "three")
    for name in names:
        left(world, "a", name=name)
    for count in (2, 3):
        world.ledgers.rest(inf)
        assert sum(world.ledgers.rests(Identity("", name, "localhost")) for name in names) == count


@pytest.mark.parametrize("reset", [False, True])
def test_nothing_is_kept_after_the_retry_window_however_a_connection_ended(reset: bool) -> None:
    world = World()
    talk = world.connect()
    talk.did("a")
    talk.close(reset=reset)
    world.ledgers.rest(inf)
    world.ledgers.sweep(world.now + RULES.window)
    assert world.ledgers.rests(ONE)
    assert world.ledgers.unconfirmed == reset  # what ended in good order is compared, and not counted
    world.ledgers.sweep(world.now + RULES.window + 1)
    assert world.ledgers.of(ONE) is None
    assert (world.ledgers.size, world.ledgers.unconfirmed) == (0, 0)


def test_batches_expire_one_by_one() -> None:
    world = World()
    for text in "ab":
        left(world, text)
        world.now += 10
    world.ledgers.rest(inf)
    world.ledgers.sweep(world.now - 15 + RULES.window)
    assert not world.ledgers.rests(ONE)
    assert world.ledgers.unconfirmed == 1


def test_what_is_in_doubt_is_listed_and_counted_while_it_rests() -> None:
    world = World()
    ledger = left(world, "a")
    listed, counts = ledger.in_doubt(world.now), world.ledgers.counts()
    assert world.ledgers.in_question() == [ONE]
    world.ledgers.rest(inf)
    assert world.ledgers.in_question() == [], "it is listed already"
    assert world.ledgers.in_doubt(ONE, world.now) == listed
    assert world.ledgers.counts() == counts == {ONE: 1}
    assert world.ledgers.rests(ONE)


def test_a_list_of_another_process_ends_the_rest_and_an_empty_one_does_not() -> None:
    world = World()
    left(world, "a")
    world.lists["other"] = InDoubt(1)
    world.ledgers.rest(inf)
    world.ledgers.sweep(world.now)
    assert world.ledgers.rests(ONE)
    batch = ListedBatch(KEY, 5, 0, 0, 7, int(world.now * 1000), clean=False)
    world.lists["other"] = InDoubt(2, (batch,))
    assert batch in world.ledgers.in_doubt(ONE, world.now)
    assert not world.ledgers.rests(ONE)
    world.ledgers.rest(inf)
    assert not world.ledgers.rests(ONE)
    world.lists.clear()
    world.ledgers.sweep(world.now + 1)
    left(world, "b", name="two")
    world.lists["other"] = InDoubt(3, (batch._replace(key=OTHER),))
    world.ledgers.sweep(world.now + 1)
    assert not world.ledgers.rests(Identity("", "two", "localhost"))


def test_a_batch_of_one_record_takes_less_than_two_kilobytes() -> None:
    world = World()
    left(world, "a")
    world.ledgers.rest(inf)
    world.ledgers.sweep(world.now)
    assert RESTING_BYTES < world.ledgers.size < 2000 < LEDGER_BYTES
    assert MOST_BYTES + RESTING_BYTES < LEDGER_BYTES


def test_where_memory_is_short_the_oldest_batches_go_first_whether_they_rest_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()

    def leave(name: str, *texts: str) -> None:
        left(world, *texts, name=name)
        world.now += 1

    leave("one", "a")
    leave("two", "b", "c")
    leave("three", "d")
    leave("two", "e")
    world.ledgers.rest(inf)
    leave("four", "f")
    world.ledgers.sweep(world.now)
    monkeypatch.setattr(doubt_memory, "MAX_PEER_BYTES", world.ledgers.size - 1)
    assert world.ledgers.sweep(world.now) == 1
    assert {identity.client_id for identity in world.ledgers.counts()} == {"two", "three", "four"}
    monkeypatch.setattr(doubt_memory, "MAX_PEER_BYTES", LEDGER_BYTES + 1500)
    assert world.ledgers.sweep(world.now) == 4
    assert {identity.client_id: count for identity, count in world.ledgers.counts().items()} == {"four": 1}


def test_a_peer_that_takes_too_much_loses_nothing_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    for name in ("one", "two", "three"):
        left(world, "a", name=name)
    talk = world.connect(Identity("", "friend", "there"))
    talk.did("a")
    talk.close(reset=True)
    world.ledgers.rest(inf)
    monkeypatch.setattr(doubt_memory, "MAX_PEER_BYTES", 4000)
    assert world.ledgers.sweep(world.now) > 0
    assert world.ledgers.rests(Identity("", "friend", "there"))


def test_producers_share_their_rules_unless_an_option_names_them() -> None:
    assert RULES.of(ONE) is RULES
    assert replace(RULES, new_timestamps=("one",)).of(ONE).renews_timestamps
    assert replace(RULES, connection_pools=("o*",)).of(ONE).pools_connections


@pytest.mark.parametrize("rests", [False, True])
def test_of_a_log_that_was_cut_nothing_is_in_doubt_that_it_has_lost(rests: bool) -> None:
    """A retry of that is written again. On another partition it is none."""
    world = World()
    left(world, "a", "b", "c", keys=(KEY, OTHER))
    if rests:
        world.now += REST_AFTER_S + 1
        world.ledgers.rest(world.now)
        assert world.ledgers.rests(ONE)
    world.log().batches.pop()
    world.ledgers.cut(KEY, 2)
    assert world.ledgers.rests(ONE) == rests
    world.connect().did("a", "b", "c", keys=(KEY, OTHER))
    assert (world.text(), world.text(OTHER)) == ("abc", "abc")


@pytest.mark.parametrize("repeats", [False, True])
def test_nor_is_it_once_a_connection_ends_whose_client_may_not_have_the_success(repeats: bool) -> None:
    world = World()
    if repeats:
        left(world, "a", "b")
    older = world.connect()
    older.did("a")
    older.did("b")
    world.log().batches.pop()
    world.ledgers.cut(KEY, 1)
    older.close(reset=True)
    newer = world.connect()
    newer.did("a")
    newer.did("b")
    assert world.text() == "ab"


def test_what_was_written_after_a_cut_is_in_doubt() -> None:
    world = World()
    world.ledgers.cut(KEY, 0)
    left(world, "a")
    world.now += REST_AFTER_S + 1
    world.ledgers.rest(world.now)
    world.connect().did("a")
    assert world.text() == "a"
