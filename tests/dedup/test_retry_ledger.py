"""What the connections of one producer share."""

import pytest

from kproxy.dedup.digest import Digest
from kproxy.dedup.refused import Refused
from kproxy.dedup.retry_ledger import ReadBack, Recover, Settle
from kproxy.dedup.unconfirmed import PendingProduce
from tests.dedup.talk import KEY, OTHER, Talk, World

FIRST, SECOND = Digest(b"first", 7), Digest(b"second", 7)


def test_a_connection_that_is_alone_needs_no_look_until_another_comes() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    answer = first.did("a")
    ledger = first.member.ledger
    assert ledger.is_calm(first.member, answer)
    second.did("b")
    assert not ledger.is_calm(first.member, answer)
    assert ledger.is_calm(second.member, answer)


def test_partitions_are_in_doubt_each_by_itself() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.ask("a")
    first.close()
    assert second.prerequisite() == Settle([KEY])
    answer = second.did("b", keys=(OTHER,))
    assert second.prerequisite(answer) is None


def test_what_is_in_doubt_is_read_back_once() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.did("ab")
    first.close(reset=True)
    prerequisite = second.prerequisite()
    assert isinstance(prerequisite, ReadBack)
    world.clear(second, prerequisite)
    assert second.prerequisite() is None


def test_what_the_log_holds_no_more_is_forgotten() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.did("a")
    first.close(reset=True)
    prerequisite = second.prerequisite()
    assert isinstance(prerequisite, ReadBack)
    for entry in prerequisite.entries:
        second.member.ledger.forget(entry)
    assert second.prerequisite() is None
    assert second.member.ledger.count == 0


def test_an_abandoned_lane_is_fenced_where_it_was_used_and_only_there() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.ask("a")
    first.close()
    first.member.abandon(first.lane, world.now)
    prerequisite = second.prerequisite()
    assert isinstance(prerequisite, Recover)
    assert [lane.producer_id for lane in prerequisite.lanes] == [first.lane.producer_id]
    assert prerequisite.keys == [KEY]
    assert second.prerequisite(second.did("b", keys=(OTHER,))) is None


def test_a_lane_that_is_abandoned_while_another_is_fenced_is_fenced_after_it() -> None:
    world = World()
    first, second, third = world.connect(), world.connect(), world.connect()
    first.ask("a")
    request = second.ask("b")
    late = bytes(request.sends[0].batch)
    first.close()
    second.close()
    first.member.abandon(first.lane, world.now)
    prerequisite = third.prerequisite()
    assert isinstance(prerequisite, Recover)
    second.member.abandon(second.lane, world.now)
    world.clear(third, prerequisite)
    world.log().append(late)  # the second lane is not fenced yet
    third.did("b")
    assert world.text() == "b"


def test_of_an_abandoned_lane_only_what_was_open_is_in_doubt() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.did("a")
    world.now += 100
    first.did("b", keys=(OTHER,))
    first.ask("c")
    first.close()
    first.member.abandon(first.lane, world.now)
    second.did("a")
    assert world.text() == "aa"


def test_an_answered_request_is_counted_no_more_when_its_fate_is_known() -> None:
    world = World()
    talk = world.connect()
    request = talk.ask("a")
    talk.member.timed_out(request)
    assert talk.member.ledger.count == 1
    talk.write(request)
    assert talk.prerequisite() != Settle([KEY])
    world.now += 121
    world.ledgers.sweep(world.now)
    assert talk.member.ledger.count == 0


def refused(talk: Talk, since: float, first: Digest) -> Refused:
    """A request that was refused, and told so at once."""
    return Refused.of(talk.member, since, PendingProduce([], 60.0, at=since, position=1), [first])


def test_what_was_refused_at_one_broker_is_answered_once_to_a_connection_to_another() -> None:
    world = World()
    former, leader = world.connect(), world.connect()
    leader.member.moved(2)
    ledger, now = former.member.ledger, world.now
    ledger.refuse(KEY, refused(former, now, FIRST))
    known = ledger.refuse(KEY, refused(former, now + 0.1, SECOND))
    assert known.in_retry([FIRST])
    assert ledger.take_refused(former.member, KEY, now + 0.2) is None
    assert ledger.take_refused(leader.member, KEY, now + 0.2) == known
    assert ledger.take_refused(leader.member, KEY, now + 0.2) is None


def test_a_refusal_is_forgotten_after_a_second() -> None:
    world = World()
    talk = world.connect()
    ledger, later = talk.member.ledger, world.now + 2
    ledger.refuse(KEY, refused(talk, world.now, FIRST))
    ledger.expire(world.now + 0.5)
    assert ledger.refused
    ledger.expire(later)
    assert not ledger.refused
    ledger.refuse(KEY, refused(talk, world.now, FIRST))
    assert ledger.take_refused(talk.member, KEY, later) is None
    assert not ledger.refused


def test_a_refused_request_that_came_again_at_its_own_broker_is_not_told_to_another() -> None:
    world = World()
    former, leader = world.connect(), world.connect()
    leader.member.moved(2)
    ledger, now = former.member.ledger, world.now
    known = ledger.refuse(KEY, refused(former, now, FIRST))
    ledger.retried(leader.member, KEY)
    assert ledger.take_refused(leader.member, KEY, now) == known
    ledger.refuse(KEY, refused(former, now, FIRST))
    ledger.retried(former.member, KEY)
    assert ledger.take_refused(leader.member, KEY, now) is None


def test_of_equal_records_the_one_of_a_connection_that_has_ended_is_the_likeliest() -> None:
    """What a live connection was answered with an error it repeats itself."""
    world = World()
    ended, live, retry = world.connect(), world.connect(), world.connect()
    ended.write(ended.ask("a"))
    request = live.ask("a")
    live.member.timed_out(request)
    live.write(request)
    ended.close()
    ledger = retry.member.ledger
    for talk, last in ((retry, ended), (live, live)):
        found = ledger.candidates(talk.member, KEY, [KEY], world.now)
        assert len(found) == 2
        assert found[-1].origin == last.member.number


def test_what_no_client_repeats_any_more_is_new_also_before_it_is_swept_away() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.did("a")
    first.close(reset=True)
    world.now += 121
    second.did("a")
    assert world.text() == "aa"


@pytest.mark.parametrize(("age", "text"), [(119, "a"), (121, "aa")])
def test_what_was_answered_too_late_is_in_doubt_on_its_connection_for_the_window_of_retries(
    age: float, text: str
) -> None:
    world = World()
    talk = world.connect()
    request = talk.ask("a", due=world.now)
    world.now += 1
    talk.write(request)
    talk.tell(request)
    assert talk.prerequisite() is not None
    assert KEY in talk.member.kept
    world.now += age
    world.ledgers.sweep(world.now)
    assert (KEY in talk.member.kept) is (text == "a")
    talk.did("a")
    assert world.text() == text


def test_of_equal_records_the_one_that_timed_out_on_the_connection_itself_is_the_likeliest() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    timed_out = second.ask("a")
    first.write(other := first.ask("a"))
    second.member.timed_out(timed_out)
    second.tell(timed_out)
    second.write(timed_out)
    first.close()
    (again,) = second.ask("a").moved
    assert other.sends[0].base_offset == 0
    assert again.stamp.base_offset == timed_out.sends[0].base_offset == 1


def test_those_that_wait_are_woken_when_the_log_was_read() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.ask("a")
    first.close()
    first.member.abandon(first.lane, world.now)
    prerequisite = second.prerequisite()
    assert isinstance(prerequisite, Recover)
    changes = world.changes
    world.clear(second, prerequisite)
    assert world.changes > changes


def test_of_what_a_former_kproxy_wrote_no_log_append_time_is_known() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    request = first.ask("a")
    late = bytes(request.sends[0].batch)
    first.close()
    first.member.abandon(first.lane, world.now)
    world.log().append(late)
    (entry,) = second.ask("a").moved
    assert (entry.log_append_time_ms, entry.answered) == (-1, False)


def test_a_producer_is_idle_once_what_was_in_doubt_is_forgotten() -> None:
    world = World()
    talk = world.connect()
    talk.did("a")
    talk.close(reset=True)
    ledger = talk.member.ledger
    (entry,) = ledger.entries[KEY]
    ledger.forget(entry)
    assert ledger.idle


def test_what_a_retry_has_matched_is_not_in_doubt_while_its_connection_lives() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.did("a")
    first.close(reset=True)
    assert second.member.ledger.held == 1
    second.did("a")
    assert second.member.ledger.held == 0
