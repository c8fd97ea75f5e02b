"""All views: what filters and coordinates ask of them; two readers of the same log agree."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec.messages import Message
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry, encode
from kproxy.txn.snapshot import snapshot_records
from kproxy.txn.unmirrored_offsets import offsets_bytes
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import LogPosition
from kproxy.txn.views import COPY_BYTES, Views
from tests.txn.bodies import (
    claim,
    decision,
    member,
    mirrored,
    nonce,
    offsets,
    partitions,
    prepare,
    producer,
    reject,
)

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
        took = self.views.apply(self.partition, LogPosition(self.offset, 0), key, value)
        self.offset += 1
        return bool(took)


@pytest.fixture
def views() -> Views:
    return Views()


def test_what_changes_something_is_reported(views: Views) -> None:
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
    for part, place in ((Q0, PLACE), (P0, ("t", 1))):
        views.forget_copies(part, place)
        assert other(0, 9)
    views.forget_copies(P0, PLACE)
    assert not other(0, 9)


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


def test_a_topic_stays_one_that_transactions_have_written_to(views: Views) -> None:
    feed = Feed(views)
    assert not views.has_written("t")
    feed.give("a", claim(1, P0), partitions(1, P0, {PLACE: 9}), decision(1, P0, False))
    assert views.has_written("t")
    assert not views.has_written("other")


def test_offsets_of_a_group_are_found_until_the_broker_has_them(views: Views) -> None:
    feed = Feed(views)
    moved = offsets(1, P0, "g", {PLACE: 5})
    feed.give("a", claim(1, P0), moved, offsets(1, P0, "h", {PLACE: 6}))
    assert [(view.transactional_id, part, body) for view, part, body in views.undecided_offsets("g")] == [
        ("a", P0, moved)
    ]
    assert [body.group_id for _, _, body in views.undecided_offsets("h")] == ["h"]
    assert not list(views.unmirrored_offsets("g"))
    feed.give("a", decision(1, P0, True))
    assert [body.group_id for _, _, body in views.unmirrored_offsets("h")] == ["h"]
    assert not list(views.undecided_offsets("g"))
    assert [(part, body) for _, part, body in views.unmirrored_offsets("g")] == [(P0, moved)]
    feed.give("a", mirrored(P0, "g"))
    assert not list(views.unmirrored_offsets("g"))
    assert len(list(views.unmirrored_offsets("h"))) == 1


def test_an_id_is_unsettled_while_something_is_open_prepared_or_not_told_to_a_broker(views: Views) -> None:
    feed = Feed(views)
    steps = [
        (claim(1, P0, epochs=3), False),
        (partitions(1, P0, {PLACE: 5}), True),
        (decision(1, P0, True), False),
        (member(1, P1, M, 2), True),
        (prepare(2, M, []), True),
        (decision(1, P1, True, [P1, M]), False),
        (partitions(1, P2, {PLACE: 5}), True),
    ]
    for body, is_unsettled in steps:
        assert feed.give("a", body) == [True]
        assert [view.transactional_id for view in views.unsettled()] == (["a"] if is_unsettled else [])
    assert views.count == 1
    views.restart(0, 0)
    assert (views.unsettled(), views.count) == ([], 0)


def test_a_partition_that_is_read_again_is_forgotten(views: Views) -> None:
    other = Feed(views, 1)
    other.give("b", claim(2, Q0), partitions(2, Q0, {PLACE: 4}))
    feed = Feed(views)
    feed.give("a", claim(1, P0), member(1, P0, M, 5), partitions(1, P0, {PLACE: 1}), offsets(1, P0, "g", {PLACE: 5}))
    views.restart(0, 0)
    assert views.of("a") is None
    assert views.of_producer(P0.producer_id) is views.of_producer(M.producer_id) is None
    assert views.verdict(*M) is U
    assert views.bound("t", 0) == 4
    assert not list(views.undecided_offsets("g"))
    assert feed.give("a", claim(3, P0), decision(3, P0, True)) == [True, True]
    assert views.verdict(*P0) is C
    assert views.of("b") is not None


NEWER_KIND = struct.pack(">hbh", 0, 99, 1) + b"a"
NEWER_VERSION = struct.pack(">h", 1) + b"?"


@pytest.mark.parametrize("raw", [(NEWER_KIND, b"\0\0"), (NEWER_VERSION, b""), (None, None), (b"\0", b"")])
def test_after_what_is_not_understood_nothing_is_decided(raw: tuple[bytes | None, bytes | None]) -> None:
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


def test_a_partition_that_has_lost_its_beginning_is_continued_with_what_is_left(views: Views) -> None:
    views.restart(0, 5)
    feed = Feed(views)
    feed.offset = 5
    assert feed.give("a", decision(1, P0, True), claim(2, P1), claim(3, P1)) == [False] * 3
    assert views.without_beginning([0, 1]) == [0]
    assert [entry.body for entry in views.begin_without(0)] == [claim(2, P1)]
    assert views.without_beginning([0, 1]) == []
    assert feed.give("a", decision(2, P1, True)) == [True]


def test_the_bytes_of_a_partition_are_counted(views: Views) -> None:
    raws = [encode(Entry("a", body)) for body in (claim(1, P0), decision(1, P0, True))]
    for raw in raws:
        Feed(views).raw(*raw)
    assert views.loader(0).size == sum(len(key) + len(value) for key, value in raws)


# -- producer ids that the log does not know


def test_a_reader_that_stops_at_an_unknown_id_is_noted_until_the_log_says_something_of_it(views: Views) -> None:
    feed = Feed(views)
    feed.give("a", claim(1, P0), partitions(1, P0, {PLACE: 9}))
    for met in (P0, Q0, M):
        views.met(met.producer_id, *PLACE, 4)
    assert [one.producer_id for one in views.unknown] == [Q0.producer_id, M.producer_id]
    assert views.bound(*PLACE) == 4
    feed.give("b", claim(2, Q0))
    feed.give("a", member(1, P0, M, 5))
    assert not list(views.unknown)
    assert views.bound(*PLACE) == 9


def test_what_is_rejected_is_aborted_whatever_its_epoch(views: Views) -> None:
    views.met(Q0.producer_id, *PLACE, 4)
    assert views.verdict(*Q0) is U
    feed = Feed(views, 1)
    assert feed.give("", reject(Q0.producer_id), reject(Q0.producer_id)) == [True, False]
    assert [views.verdict(Q0.producer_id, epoch) for epoch in (0, 99)] == [A, A]
    assert views.is_rejected(Q0.producer_id)
    assert views.bound(*PLACE) is None
    views.met(Q0.producer_id, *PLACE, 4)
    assert not list(views.unknown)


def test_a_claim_or_member_of_a_rejected_id_does_not_count(views: Views) -> None:
    feed = Feed(views)
    feed.give("", reject(Q0.producer_id), reject(M.producer_id))
    assert feed.give("a", claim(1, Q0), claim(2, P0), member(2, P0, M, 5)) == [False, True, False]
    assert [views.verdict(*part) for part in (Q0, M)] == [A, A]
    view = views.of("a")
    assert view is not None
    assert view.generations == [P0.producer_id]


def test_an_id_that_the_partition_knows_is_not_rejected_there(views: Views) -> None:
    feed = Feed(views)
    feed.give("a", claim(1, P0), member(1, P0, M, 5), decision(1, P0, True, [P0, M]))
    assert feed.give("", reject(P0.producer_id), reject(M.producer_id)) == [False, False]
    assert [views.verdict(*part) for part in (P0, M)] == [C, C]


def test_what_another_partition_rejects_is_aborted_in_whatever_order_they_are_read(views: Views) -> None:
    other = Views()
    for reader, order in ((views, (0, 1)), (other, (1, 0))):
        for partition in order:
            if partition:
                Feed(reader, 1).give("", reject(P0.producer_id))
            else:
                Feed(reader).give("a", claim(1, P0), decision(1, P0, True))
        assert reader.verdict(*P0) is A
    assert views.of("a") == other.of("a")


@pytest.mark.parametrize("producer_id", [-1, 0, 7, 1 << 62])
def test_only_ids_of_transactions_are_rejected(views: Views, producer_id: int) -> None:
    assert Feed(views).give("", reject(producer_id)) == [False]
    assert not views.is_rejected(producer_id)


def test_a_partition_that_is_read_again_rejects_what_it_says_then(views: Views) -> None:
    Feed(views).give("", reject(Q0.producer_id))
    Feed(views, 1).give("", reject(M.producer_id))
    views.restart(0, 0)
    assert [views.verdict(*part) for part in (Q0, M)] == [U, A]
    assert set(views.rejected(0)) == set()
    assert set(views.rejected(1)) == {M.producer_id}


# -- any log

N = producer(201, 0)
_mains = st.builds(producer, st.sampled_from([100, 101, 102]), st.integers(0, 3))
_parts = _mains | st.sampled_from([M, N])
_numbers = st.integers(1, 2)


def _records(producer_ids: list[int], its_member: Producer) -> st.SearchStrategy[Message]:
    """Of one transactional id: no other one is given its producer ids, but records may name any."""
    return st.one_of(
        st.builds(
            lambda number, pid, epoch: claim(number, producer(pid, epoch), epochs=2),
            _numbers,
            st.sampled_from(producer_ids),
            st.sampled_from([0, 2]),
        ),
        st.builds(partitions, _numbers, _parts, st.just({PLACE: 3})),
        st.builds(offsets, _numbers, _parts, st.just("g"), st.just({PLACE: 3})),
        st.builds(member, _numbers, _mains, st.just(its_member), _numbers),
        st.builds(prepare, _numbers, _parts),
        st.builds(decision, _numbers, _mains, st.booleans(), st.lists(_parts, max_size=2)),
        st.builds(mirrored, _parts, st.just("g")),
        st.builds(reject, _parts.map(lambda part: part.producer_id)),
    )


_logs = st.lists(
    st.tuples(st.just("a"), _records([100, 101], M)) | st.tuples(st.just("b"), _records([102], N)), max_size=20
)


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
@given(_logs, st.integers(0, 20))
def test_a_reader_of_a_snapshot_agrees_with_a_reader_of_the_log(log: list[tuple[str, Message]], up_to: int) -> None:
    """Nothing of one partition depends on what another says."""
    first, late = Views(), Views()
    one, other = Feed(first), Feed(late)
    for name, body in log[:up_to]:
        one.give(name, body)
    stated, end = list(first.rejected(0)), one.offset
    late.restart(0, end)
    other.offset = end
    for raw in snapshot_records(first.of_partition(0), end, nonce(1), 100, stated):
        other.raw(*raw)
    for name, body in log[up_to:]:
        assert one.give(name, body) == other.give(name, body)
    assert late.knows(0)
    assert {view.transactional_id: view.producer_ids() for view in first.all()} == {
        view.transactional_id: view.producer_ids() for view in late.all()
    }
    assert set(first.rejected(0)) == set(late.rejected(0))
    for part in (P0, P1, P2, Q0, M, N):
        assert first.verdict(*part) is late.verdict(*part)
        first.met(part.producer_id, *PLACE, 0)
        late.met(part.producer_id, *PLACE, 0)
    assert list(first.unknown) == list(late.unknown)


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
    assert views.offsets_bytes == sum(view.offsets_bytes for view in every)
    assert views.copies_bytes() == COPY_BYTES * sum(len(x) for view in every for x in view.copies.values())
    views.restart(0, 0)
    assert views.offsets_bytes == 0


#: A transaction that was committed with offsets, and one that is open.
MOVED: tuple[Message, ...] = (
    claim(1, P0),
    offsets(1, P0, "g", {PLACE: 5}),
    decision(1, P0, True),
    offsets(1, P1, "h", {PLACE: 6}),
)


def load(reader: Views, writer: Views, up_to: int) -> None:
    """The reader finds that the log begins with the snapshot."""
    reader.restart(0, up_to)
    feed = Feed(reader)
    feed.offset = up_to
    for raw in snapshot_records(writer.of_partition(0), up_to, nonce(9)):
        feed.raw(*raw)


def test_what_waits_for_a_decision_or_for_the_brokers_own_group_offsets_is_measured(views: Views) -> None:
    feed = Feed(views)
    feed.give("a", *MOVED)
    view = views.of("a")
    assert view is not None
    pending = offsets_bytes(offsets(1, P1, "h", {PLACE: 6}))
    assert views.offsets_bytes == view.unmirrored.size + pending > pending
    feed.give("a", mirrored(P0, "g"))
    assert views.offsets_bytes == pending
    feed.give("a", decision(1, P1, False))
    assert views.offsets_bytes == 0
    Feed(views, 1).give("b", claim(2, Q0), offsets(2, Q0, "g", {PLACE: 5}), decision(2, Q0, True))
    assert views.offsets_bytes > 0
    views.restart(1, 0)
    assert views.offsets_bytes == 0


def test_a_group_is_found_after_a_snapshot_was_loaded(views: Views) -> None:
    writer = Views()
    Feed(writer).give("a", *MOVED)
    load(views, writer, len(MOVED))
    assert [part for _, part, _ in views.unmirrored_offsets("g")] == [P0]
    assert [part for _, part, _ in views.undecided_offsets("h")] == [P1]
    assert views.offsets_bytes == writer.offsets_bytes


def test_what_readers_ask_is_known_after_a_snapshot_was_loaded(views: Views) -> None:
    writer = Views()
    Feed(writer).give("a", claim(1, P0), partitions(1, P0, {PLACE: 5}))
    views.met(P0.producer_id, *PLACE, 4)
    load(views, writer, 2)
    (view,) = views.unsettled()
    assert view is views.of_producer(P0.producer_id) is views.of("a")
    assert not list(views.unknown)
    assert views.bound(*PLACE) == 5
    assert views.has_written(PLACE[0])


def test_an_id_that_two_partitions_state_is_measured_once(views: Views) -> None:
    writer = Views()
    Feed(writer).give("a", *MOVED)
    Feed(views, 1).give("a", *MOVED)
    load(views, writer, len(MOVED))
    assert views.offsets_bytes == writer.offsets_bytes
