"""Each invariant is broken by a history and logs made for it, and by nothing else."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kproxy.codec.batch import Record, build_batch
from kproxy.testing.fake_broker import FakeCluster
from kproxy.testing.fake_broker.cluster_state import Broker
from kproxy.testing.fake_broker.producers import ProducerStates
from verification.simulation import invariants
from verification.simulation.contents import Content, Headers
from verification.simulation.history import History, Sent, State
from verification.simulation.plan import TOPIC, ClientPlan

OK, OPEN, REFUSED = State.OK, State.OPEN, State.REFUSED
Row = tuple[bytes, State, int]


def client(number: int = 0, *, magic: int = 2, depth: int = 1, name: str | None = None, acks: int = -1) -> ClientPlan:
    return ClientPlan(number, name or f"c{number}", "10.0.0.1", 0, 5, magic, 0, depth, acks, ())


def history(*made: tuple[ClientPlan, Sequence[Row]]) -> History:
    """Records of clients: value, state, offset answered; all at different times, on one partition."""
    told = History()
    for plan, rows in made:
        for value, state, offset in rows:
            order = len(told.records)
            told.records.append(Sent(plan, order, 0, value, 1000 + order, state, offset, 1, order))
    return told


def mix(told: History) -> None:
    """Each record was sent while an equal one was in doubt."""
    for sent in told.records:
        sent.mixed = True


def verdict(told: History, *log: bytes) -> set[str]:
    return {name for name, _ in invariants.broken(told, [dict(enumerate(map(Content, log)))])}


def test_a_history_that_agrees_with_the_log_breaks_nothing() -> None:
    rows = [(b"a", OK, 0), (b"b", OPEN, -1), (b"c", OK, 1), (b"d", OPEN, -1)]
    assert verdict(history((client(), rows)), b"a", b"c", b"d") == set()


def test_an_acknowledged_record_that_is_nowhere_is_lost() -> None:
    assert verdict(history((client(), [(b"a", OK, -1)]))) == {invariants.LOST}


def test_more_copies_than_sends_are_duplicates() -> None:
    assert verdict(history((client(), [(b"a", OPEN, -1)])), b"a", b"a") == {invariants.DUPLICATE}
    assert verdict(history((client(), [(b"a", OK, 0), (b"a", OPEN, -1)])), b"a", b"a") == set()
    assert verdict(history((client(), [(b"a", REFUSED, -1)])), b"a") == {invariants.DUPLICATE}


def test_a_copy_of_what_was_sent_again_unseen_is_not_judged() -> None:
    told = history((client(), [(b"a", OK, 0), (b"b", OK, 2)]))
    assert verdict(told, b"a", b"a", b"b") == {invariants.DUPLICATE}
    told.records[1].unseen = True
    assert verdict(told, b"a", b"a", b"b") == {invariants.DUPLICATE}
    told.records[0].unseen = True
    assert verdict(told, b"a", b"a", b"b") == set()


@pytest.mark.parametrize(("timestamp", "beside", "is_judged"), [(7, True, False), (8, True, True), (7, False, True)])
def test_a_copy_of_what_was_repeated_beside_an_error_is_not_judged_if_its_equal_was_refused(
    timestamp: int, beside: bool, is_judged: bool
) -> None:
    told = history((client(), [(b"a", OK, 0), (b"a", OK, 1)]))
    written, refused = told.records
    written.timestamp, refused.timestamp = 7, timestamp
    written.beside, refused.refused = beside, True
    assert (invariants.DUPLICATE in verdict(told, b"a", b"a", b"a")) is is_judged


def test_it_is_counted_what_cannot_be_judged() -> None:
    told = history((client(magic=1), [(b"a", OK, 0), (b"a", OK, 1), (b"b", OPEN, -1)]), (client(1), [(b"c", OK, 2)]))
    for sent in told.records:
        sent.timestamp = 7
    assert invariants.judged(told) == (3, 0, 1, 0)
    told.records[2].unseen = True
    assert invariants.judged(told) == (3, 1, 1, 0)
    told.records[1].unseen = told.records[1].mixed = True
    assert invariants.judged(told) == (3, 2, 1, 1)


def test_fewer_copies_than_acknowledged_are_merged() -> None:
    rows = [(b"a", OK, -1), (b"a", OK, -1)]
    assert verdict(history((client(), rows)), b"a") == {invariants.MERGED}


def test_equal_records_without_timestamps_are_judged_unless_one_came_while_the_other_was_in_doubt() -> None:
    rows = [(b"a", OK, -1), (b"a", OK, -1)]
    told = history((client(magic=0), rows))
    assert verdict(told, b"a") == {invariants.MERGED}
    told.disturb(client())
    assert verdict(told, b"a") == {invariants.MERGED}
    told.records[1].mixed = True
    assert verdict(told, b"a") == set()


def test_equal_records_of_another_process_without_timestamps_are_not_judged() -> None:
    other = client(1, magic=0, name="c0")
    told = history((client(), [(b"a", OK, 0)]), (other, [(b"a", OK, 0)]))
    assert verdict(told, b"a") == {invariants.MERGED}
    mix(told)
    assert verdict(told, b"a") == set()


async def test_equal_records_of_two_processes_of_one_name_are_judged_unless_one_lost_an_answer() -> None:
    """Its retry may bear another time, as sarama's do: nobody can tell it from the other's record."""
    other = client(1, name="c0")
    told = history((client(), [(b"a", OK, -1)]), (other, [(b"a", OK, -1)]))
    mix(told)
    told.disturb(client())
    assert verdict(told, b"a") == {invariants.MERGED}
    told.records[0].state = OPEN
    told.disturb(client())
    told.records[0].state = OK
    assert verdict(told, b"a") == set()
    alone = history((client(), [(b"a", OK, -1), (b"a", OK, -1)]))
    mix(alone)
    alone.records[0].shaken = True
    assert verdict(alone, b"a") == {invariants.MERGED}


def test_copies_of_old_records_after_a_fence_that_the_broker_forgot_are_not_judged() -> None:
    old = replace(client(), age=172_800.0)
    for plan, found in (old, set()), (client(), {invariants.DUPLICATE}):
        told = history((plan, [(b"a", OK, -1)]))
        assert verdict(told, b"a", b"a") == {invariants.DUPLICATE}
        told.outlived.add((0, Content(b"a")))
        assert verdict(told, b"a", b"a") == found


@pytest.mark.parametrize("offset", [0, -1], ids=["place", "no-place"])
async def test_a_record_that_was_taken_for_another_one_is_not_judged_if_that_was_retried_where_nobody_knew(
    offset: int,
) -> None:
    cluster = FakeCluster(lambda: 0, brokers={1: Broker(1, "broker-1", 9092)})
    cluster.create_topic(TOPIC)
    data = build_batch([Record(0, 1001, None, b"a", ())], producer_id=5, producer_epoch=0, base_sequence=0)
    cluster.topics[TOPIC].partitions[0].log.append(memoryview(data), 0, 7)
    told = history((client(), [(b"a", OK, offset), (b"a", OK, 0)]))
    mix(told)
    taken, other = told.records
    told.sent[(0, Content(b"a")), "c0", "10.0.0.1"] = [taken, other]
    other.timestamp, taken.answered_at = 1001, 2.0
    for resumed_at in -1.0, 2.0:
        other.resumed_at = resumed_at
        assert invariants.read_retold(cluster, told) == set()
    assert verdict(told, b"a") == {invariants.MERGED}
    other.resumed_at = 2.5
    told.retold |= invariants.read_retold(cluster, told)
    assert told.retold == {(0, Content(b"a"))}
    assert verdict(told, b"a") == set()


def test_a_copy_after_a_forgotten_fence_is_not_where_its_record_is() -> None:
    rows = [(b"a", OK, 0), (b"b", OK, 1)]
    told = history((replace(client(), age=86_400.0), rows))
    told.outlived.add((0, Content(b"a")))
    assert verdict(told, b"a", b"b", b"a") == set()
    assert verdict(history((client(), rows)), b"a", b"b", b"a") == {invariants.DUPLICATE, invariants.ORDER}
    behind = history((replace(client(), age=86_400.0), [(b"a", OK, 1), (b"b", OK, 0)]))
    behind.outlived.add((0, Content(b"a")))
    assert verdict(behind, b"b", b"a", b"a") == {invariants.ORDER}


def test_copies_of_old_records_that_the_broker_has_forgotten_are_not_judged_after_a_kill() -> None:
    cluster = FakeCluster(lambda: 0, brokers={1: Broker(1, "broker-1", 9092)})
    cluster.create_topic(TOPIC)
    log = cluster.topics[TOPIC].partitions[0].log
    log.producers = ProducerStates(expiration_ms=10, check_ms=1)
    data = build_batch([Record(0, 7, None, b"a", ())], producer_id=5, producer_epoch=0, base_sequence=0)
    log.append(memoryview(data), 0, 7)
    assert invariants.read_aged_out(cluster) == set()
    for now in 8, 20:
        log.producers.expire(now)
    told = history((replace(client(), age=172_800.0), [(b"a", OK, -1)]))
    told.aged_out = invariants.read_aged_out(cluster)
    assert told.aged_out == {(0, Content(b"a"))}
    assert verdict(told, b"a", b"a") == {invariants.DUPLICATE}
    told.records[0].resumed_at = 2.0
    assert verdict(told, b"a", b"a") == set()


def test_what_was_written_under_an_epoch_that_was_over_is_found() -> None:
    cluster = FakeCluster(lambda: 0, brokers={1: Broker(1, "broker-1", 9092)})
    cluster.create_topic(TOPIC)
    log = cluster.topics[TOPIC].partitions[0].log
    for epoch, value in (0, b"a"), (1, b"b"), (0, b"c"):
        log.producers = ProducerStates()
        data = build_batch([Record(0, 7, None, value, ())], producer_id=5, producer_epoch=epoch, base_sequence=0)
        log.append(memoryview(data), 0, 7)
    assert invariants.read_outlived(cluster) == {(0, Content(b"c"))}


@pytest.mark.parametrize(
    ("later", "ms", "epoch", "found"),
    [(5, 2001, 0, True), (4, 2001, 0, False), (5, 2000, 0, False), (5, 2001, 1, True)],
    ids=["far-back", "near", "new", "next-epoch"],
)
def test_what_lies_before_the_last_batches_of_its_producer_id_when_it_is_written_again_is_buried(
    later: int, ms: int, epoch: int, found: bool
) -> None:
    cluster = FakeCluster(lambda: 0, brokers={1: Broker(1, "broker-1", 9092)})
    cluster.create_topic(TOPIC)
    log = cluster.topics[TOPIC].partitions[0].log

    def write(value: bytes, producer_id: int, epoch: int, sequence: int, at: int) -> None:
        data = build_batch(
            [Record(0, at, None, value, ())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        log.append(memoryview(data), 0, 7)

    write(b"a", 5, 0, 0, 0)
    for nth in range(later):
        write(b"%d" % nth, 5, 0, nth + 1, ms)
    write(b"a", 5 if epoch else 6, epoch, 0, ms)
    assert invariants.read_buried(cluster) == ({(0, Content(b"a")): {0}} if found else {})


def test_a_copy_of_what_was_buried_is_not_judged_if_it_was_retried_where_it_is_known_from_the_log_alone() -> None:
    told = history((client(magic=0), [(b"a", OK, 2), (b"b", OK, 1)]))
    told.buried[0, Content(b"a")] = {0}
    assert verdict(told, b"a", b"b", b"a") == {invariants.DUPLICATE, invariants.ORDER}
    told.records[0].resumed_at = 1.0
    assert verdict(told, b"a", b"b", b"a") == set()
    told.records[0].client = client()
    assert verdict(told, b"a", b"b", b"a") == {invariants.DUPLICATE, invariants.ORDER}, "it has timestamps to compare"
    told.records[0].client = client(magic=0)
    told.records[0].offset = 0  # its retry was recognised, and something else wrote the other copy
    assert verdict(told, b"a", b"b", b"a") == {invariants.DUPLICATE, invariants.ORDER}


def test_offsets_must_hold_what_was_acknowledged() -> None:
    assert verdict(history((client(), [(b"a", OK, 1)])), b"a", b"b") == {invariants.OFFSETS}


def test_acknowledged_in_one_order_and_written_in_another() -> None:
    rows = [(b"a", OK, -1), (b"b", OK, -1)]
    assert verdict(history((client(), rows)), b"b", b"a") == {invariants.ORDER}
    twin = client(1, name="c0")
    for told in history((client(depth=2), rows)), history((client(), rows), (twin, [(b"c", OK, -1)])):
        assert verdict(told, b"b", b"a", b"c") == {invariants.ORDER}
        for sent in told.records:
            sent.tries = 2  # who sends several at a time, or beside another, may send them again in any order
        assert verdict(told, b"b", b"a", b"c") == set()


@pytest.mark.parametrize("habit", [{"ready": True}, {"in_rounds": True, "depth": 3}])
def test_what_was_ready_or_pipelined_may_be_acknowledged_before_what_precedes_it(habit: dict[str, Any]) -> None:
    rows = [(b"a", OK, -1), (b"b", OK, -1)]
    told = history((replace(client(), **habit), rows))
    for at, sent in enumerate(told.records):
        sent.nth, sent.order, sent.tries = at, -at, 2
    assert verdict(told, b"a", b"b") == set()
    assert verdict(told, b"b", b"a") == {invariants.ORDER}


def test_one_offset_for_two_records_is_a_merger() -> None:
    told = history((client(), [(b"a", OK, 0), (b"a", OK, 0)]))
    assert verdict(told, b"a", b"a") == {invariants.MERGED}


def test_in_a_strict_run_all_equal_records_are_judged() -> None:
    told = history((client(magic=0), [(b"a", OK, -1), (b"a", OK, -1)]))
    mix(told)
    told.strict = True
    assert verdict(told, b"a") == {invariants.MERGED}


def test_times_of_the_broker_tell_nothing_apart() -> None:
    told = history((client(), [(b"a", OK, -1), (b"a", OK, -1)]))
    mix(told)
    assert verdict(told, b"a") == {invariants.MERGED}
    told.untimed = True
    assert verdict(told, b"a") == set()


def test_what_wants_no_answer_is_written_if_nothing_happened_to_its_connection() -> None:
    told = history((client(acks=0), [(b"a", OPEN, -1)]))
    assert verdict(told) == {invariants.UNANSWERED}
    assert verdict(told, b"a") == set()
    told.troubled.add(0)
    assert verdict(told) == set()


def test_a_topic_made_again_holds_the_rest() -> None:
    told = history((client(), [(b"a", OK, 0), (b"b", OK, 0)]))
    told.deleted.append([{0: Content(b"a")}])
    assert verdict(told, b"b") == set()
    assert verdict(told, b"a", b"b") == set()  # it came in again, since its response was lost with the topic
    assert verdict(told) == {invariants.LOST}
    assert verdict(told, b"b", b"b") == {invariants.DUPLICATE}


def test_what_was_compacted_away_was_written() -> None:
    told = history((client(), [(b"a", OK, 0)]))
    told.compacted[0] = {0: Content(b"a")}
    assert verdict(told) == set()
    assert set(invariants.broken(told, [{1: Content(b"a")}])) == {
        (invariants.DUPLICATE, "a in partition 0: 2 in the log, 1 acknowledged, 0 unknown")
    }


@pytest.mark.parametrize("excuse", ["unseen", "held_up"])
def test_the_place_of_what_was_sent_again_unseen_or_held_up_is_not_judged(excuse: str) -> None:
    told = history((client(), [(b"a", OK, -1), (b"b", OK, -1), (b"c", OK, -1)]))
    setattr(told.records[0], excuse, True)
    assert verdict(told, b"b", b"c", b"a") == set()
    assert verdict(told, b"c", b"a", b"b") == {invariants.ORDER}


def test_what_was_given_up_has_no_place_in_the_order() -> None:
    told = history((client(), [(b"a", OPEN, -1), (b"b", OK, -1)]))
    assert verdict(told, b"b", b"a") == set()


def test_an_old_offset_after_a_new_one_is_out_of_order() -> None:
    rows = [(b"a", OPEN, -1), (b"b", OK, 1), (b"a", OK, 0)]
    told = history((client(), rows))
    assert verdict(told, b"a", b"b") == set()
    told.single = True  # kproxy knows that the first a was given up
    assert verdict(told, b"a", b"b") == {invariants.ORDER}


def test_what_broke_while_the_run_continued_is_reported() -> None:
    told = history()
    told.breaks(invariants.MEMORY, "first")
    told.breaks(invariants.LEAKED, "second")
    assert list(invariants.broken(told, [])) == [(invariants.MEMORY, "first")]


def test_equal_values_with_another_key_or_other_headers_are_other_records() -> None:
    told = history((client(), [(b"a", OK, 0)]))
    for content in Content(b"a", b"k"), Content(b"a", None, (("h", b"1"),)):
        assert {name for name, _ in invariants.broken(told, [{0: content}])} == {invariants.LOST, invariants.OFFSETS}


@pytest.mark.parametrize(
    ("key", "headers", "timestamp", "found"),
    [
        (b"k", (("h", b"1"),), 1000, set()),
        (None, (("h", b"1"),), 1000, {invariants.ALTERED}),
        (b"k", (), 1000, {invariants.ALTERED}),
        (b"k", (("h", None),), 1000, {invariants.ALTERED}),
        (b"k", (("h", b"1"),), 1001, {invariants.ALTERED}),
    ],
    ids=["as-sent", "no-key", "no-headers", "another-header", "another-time"],
)
def test_a_record_is_written_with_its_key_headers_and_timestamp(
    key: bytes | None, headers: Headers, timestamp: int, found: set[str]
) -> None:
    cluster = FakeCluster(lambda: 0, brokers={1: Broker(1, "broker-1", 9092)})
    cluster.create_topic(TOPIC)
    data = build_batch([Record(0, timestamp, key, b"a", headers)])
    cluster.topics[TOPIC].partitions[0].log.append(memoryview(data), 0, 7)
    told = history((client(), []))
    told.records.append(Sent(client(), 0, 0, b"a", 1000, OK, 0, 1, 0, key=b"k", headers=(("h", b"1"),)))
    told.stamps[told.records[0].place] = {1000}
    assert {name for name, _ in invariants.altered(cluster, told)} == found
    told.untimed = True
    assert {name for name, _ in invariants.altered(cluster, told)} == (found if timestamp == 1000 else set())
