"""All views: what filters and coordinates ask of them; two readers of the same log agree."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec.messages import Message
from kproxy.testing.txn_model.bodies import claim, decision, member, mirrored, offsets, partitions, prepare, producer
from kproxy.txn.ids import Producer
from kproxy.txn.records import Entry, encode
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import Stand
from kproxy.txn.views import Views

C, A, U = Verdict.COMMITTED, Verdict.ABORTED, Verdict.UNDECIDED
P0, P1, P2 = (producer(100, epoch) for epoch in range(3))
Q0, M = producer(101, 0), producer(200, 0)
PLACE = ("t", 0)


class Feed:
    """Records go to partition 0 of the views, one offset after the other."""

    def __init__(self, views: Views, partition: int = 0) -> None:
        self.views = views
        self.partition = partition
        self.offset = 0

    def give(self, name: str, *records: Message) -> list[bool]:
        return [self.raw(*encode(Entry(name, body))) for body in records]

    def raw(self, key: bytes | None, value: bytes | None) -> bool:
        took = self.views.apply(self.partition, Stand(self.offset, 0), key, value)
        self.offset += 1
        return bool(took)


@pytest.fixture
def views() -> Views:
    return Views()


def test_what_changes_something_is_told(views: Views) -> None:
    feed = Feed(views)
    assert feed.give("a", claim(1, P0), claim(2, P0), decision(1, P0, True)) == [True, False, True]
    view = views.of("a")
    assert view is not None
    assert view is views.of_producer(P0.producer_id)
    assert list(views.all()) == [view]
    assert views.verdict(*P0) is C
    assert views.of("b") is None


def test_nothing_is_kept_of_an_id_whose_records_do_not_count(views: Views) -> None:
    assert Feed(views).give("a", decision(1, P0, True)) == [False]
    assert views.of("a") is None
    assert views.verdict(*P0) is U


def test_members_are_found_by_their_own_producer_ids(views: Views) -> None:
    Feed(views).give("a", claim(1, P0), member(1, P0, M, 5), decision(1, P0, True, [P0, M]))
    assert views.verdict(*M) is C
    assert views.of_producer(M.producer_id) is views.of("a")


def test_of_batches_that_were_sent_twice_one_copy_counts(views: Views) -> None:
    Feed(views).give("a", claim(1, P0), decision(1, P0, True, [P0], copies={P0: {PLACE: {0: 5}}}))

    def other(base_sequence: int, base_offset: int, place: tuple[str, int] = PLACE, part: Producer = P0) -> bool:
        return views.is_other_copy(*part, *place, base_sequence, base_offset)

    assert other(0, 9)
    assert not other(0, 5)
    assert not other(3, 9)  # sent once
    assert not other(0, 9, ("t", 1))
    assert not other(0, 9, ("u", 0))
    assert not other(0, 9, part=P1)
    assert not other(0, 9, part=Q0)


def test_the_lowest_bound_of_all_ids_is_the_partitions(views: Views) -> None:
    feed = Feed(views)
    feed.give("a", claim(1, P0), partitions(1, P0, {PLACE: 9}))
    feed.give("b", claim(2, Q0), partitions(2, Q0, {PLACE: 4, ("t", 1): 2}))
    assert [views.bound("t", index) for index in range(3)] == [4, 2, None]
    feed.give("b", decision(2, Q0, False))
    assert [views.bound("t", index) for index in range(3)] == [9, None, None]
    feed.give("a", decision(1, P0, True))
    assert views.bound("t", 0) is None
    feed.give("a", partitions(1, P1, {PLACE: 11}))
    assert views.bound("t", 0) == 11


def test_offsets_of_a_group_are_found_until_the_broker_has_them(views: Views) -> None:
    feed = Feed(views)
    moved = offsets(1, P0, "g", {PLACE: 5})
    feed.give("a", claim(1, P0), moved, offsets(1, P0, "h", {PLACE: 6}))
    assert [(view.transactional_id, part, body) for view, part, body in views.undecided_offsets("g")] == [
        ("a", P0, moved)
    ]
    assert not list(views.unmirrored_offsets("g"))
    feed.give("a", decision(1, P0, True))
    assert not list(views.undecided_offsets("g"))
    assert [(part, body) for _, part, body in views.unmirrored_offsets("g")] == [(P0, moved)]
    feed.give("a", mirrored(P0, "g"))
    assert not list(views.unmirrored_offsets("g"))
    assert len(list(views.unmirrored_offsets("h"))) == 1


def test_a_partition_that_is_read_anew_is_forgotten(views: Views) -> None:
    other = Feed(views, 1)
    other.give("b", claim(2, Q0), partitions(2, Q0, {PLACE: 4}))
    feed = Feed(views)
    feed.give("a", claim(1, P0), member(1, P0, M, 5), partitions(1, P0, {PLACE: 1}), offsets(1, P0, "g", {PLACE: 5}))
    views.restart(0, 0)
    assert views.of("a") is None
    assert views.verdict(*M) is U
    assert views.bound("t", 0) == 4
    assert not list(views.undecided_offsets("g"))
    assert feed.give("a", claim(3, P0), decision(3, P0, True)) == [True, True]
    assert views.verdict(*P0) is C
    assert views.of("b") is not None


NEWER_KIND = struct.pack(">hbh", 0, 99, 1) + b"a"
NEWER_VERSION = struct.pack(">h", 1) + b"?"


@pytest.mark.parametrize("raw", [(NEWER_KIND, b"\0\0"), (NEWER_VERSION, b""), (None, None), (b"\0", b"")])
def test_behind_what_is_not_understood_nothing_is_decided(raw: tuple[bytes | None, bytes | None]) -> None:
    told: list[tuple[str, str]] = []
    views = Views(lambda what, why: told.append((what, why)))
    feed = Feed(views)
    feed.give("a", claim(1, P0), decision(1, P0, True))
    assert not feed.raw(*raw)
    assert feed.give("a", decision(1, P1, True), claim(2, P2)) == [False, False]  # it may have been a claim
    assert [views.verdict(*part) for part in (P0, P1)] == [C, U]
    assert views.foreign == {0}
    assert [what for what, _ in told] == ["newer" if raw[0] in (NEWER_KIND, NEWER_VERSION) else "damaged"]
    assert Feed(views, 1).give("b", claim(2, Q0)) == [True]
    views.restart(0, 0)
    assert views.foreign == set()


def test_a_partition_is_known_unless_its_beginning_is_lost_or_something_in_it_not_understood(views: Views) -> None:
    assert views.knows(0)
    views.restart(0, 5)
    assert not views.knows(0)
    assert views.knows(1)
    Feed(views, 1).raw(NEWER_KIND, b"")
    assert not views.knows(1)
    views.restart(1, 0)
    assert views.knows(1)


# -- any log

_mains = st.builds(producer, st.sampled_from([100, 101]), st.integers(0, 3))
_parts = _mains | st.just(M)
_numbers = st.integers(1, 2)
_records = st.one_of(
    st.builds(
        lambda number, pid, epoch: claim(number, producer(pid, epoch), epochs=2),
        _numbers,
        st.sampled_from([100, 101]),
        st.sampled_from([0, 2]),
    ),
    st.builds(partitions, _numbers, _parts, st.just({PLACE: 3})),
    st.builds(offsets, _numbers, _parts, st.just("g"), st.just({PLACE: 3})),
    st.builds(member, _numbers, _mains, st.just(M), _numbers),
    st.builds(prepare, _numbers, _parts),
    st.builds(decision, _numbers, _mains, st.booleans(), st.lists(_parts, max_size=2)),
    st.builds(mirrored, _parts, st.just("g")),
)
_logs = st.lists(st.tuples(st.sampled_from(["a", "b"]), _records), max_size=20)


@settings(max_examples=200, deadline=None)
@given(_logs, st.integers(0, 20))
def test_two_readers_that_read_the_same_agree(log: list[tuple[str, Message]], restarts: int) -> None:
    first, second = Views(), Views()
    one, other = Feed(first), Feed(second)
    for name, body in log[:restarts]:
        other.give(name, body)
    second.restart(0, 0)
    other.offset = 0
    for name, body in log:
        assert one.give(name, body) == other.give(name, body)
        assert {view.transactional_id: view for view in first.all()} == {
            view.transactional_id: view for view in second.all()
        }
        assert first.bound(*PLACE) == second.bound(*PLACE)
    assert list(first.undecided_offsets("g")) == list(second.undecided_offsets("g"))
    assert list(first.unmirrored_offsets("g")) == list(second.unmirrored_offsets("g"))


@settings(max_examples=200, deadline=None)
@given(_logs)
def test_the_questions_agree_with_the_views(log: list[tuple[str, Message]]) -> None:
    views = Views()
    feed = Feed(views)
    for name, body in log:
        feed.give(name, body)
    every = list(views.all())
    bounds = [view.bound(PLACE) for view in every]
    assert views.bound(*PLACE) == min((bound for bound in bounds if bound is not None), default=None)
    assert len(list(views.undecided_offsets("g"))) == sum(len(list(view.undecided_groups())) for view in every)
    assert len(list(views.unmirrored_offsets("g"))) == sum(len(x) for view in every for x in view.unmirrored.values())
