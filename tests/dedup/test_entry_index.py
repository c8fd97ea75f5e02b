"""The entries that are like a request are found without a look at each."""

from array import array

import pytest

from kproxy.dedup import entry_index
from kproxy.dedup.digest import Digest, Digests
from kproxy.dedup.entry_index import LEAST_ENTRIES, EntryIndex
from kproxy.dedup.unconfirmed import Stamp, UnconfirmedBatch
from tests.dedup.talk import KEY, World

MANY = 3 * LEAST_ENTRIES


def digests(*numbers: int) -> Digests:
    return Digests.of(Digest(b"%-16d" % number, 7) for number in numbers)


def entry(serial: int, *numbers: int) -> UnconfirmedBatch:
    made = UnconfirmedBatch(KEY, Stamp(5, 0, serial, serial, len(numbers)), serial, sure=False, clean=True, since=1.0)
    if numbers:
        made.recall(digests(*numbers), array("q", range(len(numbers))))
    return made


def test_entries_with_a_record_like_one_of_a_request_come_in_their_order() -> None:
    entries = [entry(at, at, at // 2) for at in range(MANY)]
    index = EntryIndex(entries)
    assert index.alike(digests(10, 11, 5 * MANY).keys) == [entries[at] for at in (10, 11, 20, 21, 22, 23)]
    assert index.size > EntryIndex(entries[:5]).size


@pytest.mark.parametrize("count", [0, 1, LEAST_ENTRIES - 1])
def test_of_few_entries_each_may_be(count: int) -> None:
    entries = [entry(at, at) for at in range(count)]
    assert list(EntryIndex(entries).alike(digests(1).keys)) == entries


def test_of_more_records_than_are_sorted_each_entry_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_index, "MOST_RECORDS", MANY - 1)
    entries = [entry(at, at) for at in range(MANY)]
    assert list(EntryIndex(entries).alike(digests(1).keys)) == entries


def test_while_one_is_not_read_back_each_entry_may_be() -> None:
    entries = [*(entry(at, at) for at in range(MANY)), entry(MANY)]
    index = EntryIndex(entries)
    assert index.unread() == entries[-1:]
    assert list(index.alike(digests(1).keys)) == entries
    entries[-1].recall(digests(1), array("q", [0]))
    assert index.unread() == []
    assert index.alike(digests(1).keys) == [entries[1], entries[-1]]


@pytest.mark.parametrize("least", [LEAST_ENTRIES, 1_000_000])
def test_a_request_is_compared_with_what_is_like_it_whatever_comes_and_goes(
    monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    """A client that ended with many small batches unconfirmed, and whose next connections repeat some of them."""
    monkeypatch.setattr(entry_index, "LEAST_ENTRIES", least)
    letters = "abcdefghijklmnopqrstuvwxy"
    world = World()
    first = world.connect(software="librdkafka")
    first.wire.missing = 1_000_000
    for time in range(4):
        for letter in letters:
            first.did(letter, time=time)
    first.close(reset=True)
    second = world.connect(software="librdkafka")
    second.wire.missing = 1_000_000
    for time in range(4):
        for letter in letters[::2]:
            second.did(letter, time=time)
    second.did("z", time=9)
    second.close(reset=True)
    third = world.connect(software="librdkafka")
    third.did("z", time=9)
    third.did("b", time=2)
    third.did("b", time=9)
    assert world.text() == letters * 4 + "zb"
