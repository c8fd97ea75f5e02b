"""What the connections of one producer share."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kproxy.codec.produce_layout import PartitionData
from kproxy.dedup.digest import Digest
from kproxy.dedup.lanes import TrackKey
from kproxy.dedup.producer_connection import Suspect
from kproxy.dedup.refused import Refused
from kproxy.dedup.retry_ledger import ReadBack, Recover, Settle
from kproxy.dedup.retry_rules import Rules
from kproxy.dedup.unconfirmed import PendingProduce
from tests.dedup.talk import KEY, OTHER, Talk, World
from tests.dedup.wires import ALONE, RULES

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
    second.saw_older()
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
    first.member.look_between(world.now)
    world.now += 120
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


@pytest.mark.parametrize("node_id", [-2, 2])
def test_what_was_refused_at_one_broker_must_not_be_overtaken_over_a_connection_to_another(node_id: int) -> None:
    world = World()
    former, leader = world.connect(), world.connect()
    leader.member.moved(node_id)
    ledger, now = former.member.ledger, world.now
    ledger.refuse(KEY, refused(former, now, FIRST))
    known = ledger.refuse(KEY, refused(former, now + 0.1, SECOND))
    assert known.in_retry([FIRST])
    assert ledger.refused_elsewhere(former.member, KEY, now + 0.2) is None
    assert ledger.refused_elsewhere(leader.member, KEY, now + 0.2) is known
    known.retry.end(now + 0.2)
    assert ledger.refused_elsewhere(leader.member, KEY, now + 0.2) is None
    assert not ledger.refused


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
    assert ledger.refused_elsewhere(talk.member, KEY, later) is None
    assert not ledger.refused


def test_a_refused_request_that_came_again_at_its_own_broker_is_not_told_to_another() -> None:
    world = World()
    former, leader = world.connect(), world.connect()
    leader.member.moved(2)
    ledger, now = former.member.ledger, world.now
    known = ledger.refuse(KEY, refused(former, now, FIRST))
    ledger.retried(leader.member, KEY, now)
    assert ledger.refused_elsewhere(leader.member, KEY, now) is known
    ledger.refuse(KEY, refused(former, now, FIRST))
    for _ in range(2):
        ledger.retried(former.member, KEY, now)
        assert ledger.refused_elsewhere(leader.member, KEY, now) is None


@pytest.mark.parametrize(
    ("order", "first"),  # the older one asks first, since it waits for what is open over a newer one
    [(("ended", "live", "retry"), "ended"), (("retry", "live", "ended"), "live"), (("live", "ended", "retry"), "live")],
)
def test_of_equal_records_the_one_of_a_connection_that_has_ended_is_the_likeliest(
    order: Sequence[str], first: str
) -> None:
    """What a live connection was answered with an error it repeats itself."""
    world = World()
    talks = {name: world.connect() for name in order}
    for talk in talks.values():
        talk.saw_older()
    ended, live, retry = talks["ended"], talks["live"], talks["retry"]
    requests = {name: talks[name].ask("a") for name in sorted(("ended", "live"), key=first.__ne__)}
    live.member.timed_out(requests["live"])
    ended.write(requests["ended"])
    live.write(requests["live"])
    ended.close()
    ledger = retry.member.ledger
    for talk, last in ((retry, ended), (live, live)):
        found = ledger.candidates(talk.member, KEY, PendingProduce([PartitionData(KEY, 0, 0)], 1e9), world.now)
        assert len(found) == 2
        assert found[-1].origin is last.member.origin


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
    second, first = world.connect(), world.connect()
    first.saw_older()
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


def produce(*keys: TrackKey) -> PendingProduce:
    """A request for these partitions."""
    return PendingProduce([PartitionData(key, 0, 0) for key in keys or (KEY,)], 1e9)


def abandoned(world: World) -> None:
    """A connection has ended, and its lane was given up with an open batch."""
    talk = world.connect()
    talk.ask("a")
    talk.close()
    talk.member.abandon(talk.lane, world.now)


def lost(talk: Talk, records: str = "a", **more: Sequence[TrackKey]) -> None:
    """A request whose response the client may not have received, since its connection broke."""
    talk.did(records, **more)
    talk.close(reset=True)


# -- brokers


def test_a_connection_does_not_wait_at_a_new_broker_for_its_own_request_to_the_former_one() -> None:
    talk = World().connect()
    talk.member.moved(1)
    talk.ask("a")
    talk.member.moved(2)
    assert talk.prerequisite(produce()) is None


def test_a_request_that_waits_on_a_connection_that_has_ended_is_not_waited_for_at_another_broker() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    for node_id, talk in enumerate((first, second)):
        talk.member.moved(node_id)
    first.member.end(world.now)
    first.member.waits([KEY])
    assert second.prerequisite() is None


# -- whether a request is compared


def test_the_first_request_is_not_read() -> None:
    talk = World().connect()
    assert not talk.member.ledger.concern(talk.member, produce(), bytearray(), talk.world.now)


def test_no_request_is_taken_without_a_look_where_a_lane_has_to_be_fenced() -> None:
    world = World()
    talk = world.connect()
    ledger, answer = talk.member.ledger, talk.did("a")
    assert ledger.is_calm(talk.member, answer)
    ledger.suspect(KEY, Suspect(900, 0, 31), world.now)
    assert not ledger.is_calm(talk.member, answer)
    ledger.claim(talk.member, answer, [], world.now)
    assert isinstance(talk.prerequisite(), Recover)


def test_nor_where_a_batch_is_open() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.ask("a")
    first.close()
    second.member.ledger.claim(second.member, produce(), [], world.now)
    assert second.prerequisite() == Settle([KEY])


def test_after_a_retry_of_all_that_came_too_late_no_look_is_needed() -> None:
    world = World()
    talk = world.connect()
    talk.did_late("a")
    answer = talk.did("a")
    assert world.text() == "a"
    assert talk.member.ledger.is_calm(talk.member, answer)


@pytest.mark.parametrize(("repeated", "other"), [(KEY, OTHER), (OTHER, KEY)])
def test_a_retry_on_one_partition_does_not_make_the_others_be_compared_in_full(
    repeated: TrackKey, other: TrackKey
) -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.did("ad", keys=[repeated])
    lost(first, "b", keys=[other])
    ledger, now = second.member.ledger, world.now
    for number in range(RULES.settled_requests(1)):
        second.did("c", keys=(KEY, OTHER), time=60 + number)
    assert None not in [ledger.quick_check(second.member, key, now) for key in (KEY, OTHER)]
    second.did("a", keys=(KEY, OTHER))
    assert ledger.quick_check(second.member, repeated, now) is None
    assert ledger.quick_check(second.member, other, now) is not None


def test_what_another_instance_wrote_is_found_by_a_connection_that_was_not_compared_in_full_any_more() -> None:
    other, world = World(), World()
    other.connect().did("q")
    talk = world.connect()
    lost(world.connect(), "a")
    for number in range(RULES.settled_requests(1)):
        talk.did("c", time=60 + number)
    assert talk.check() is not None
    world.logs = other.logs
    world.elsewhere = [Suspect(101, 0, 31, elsewhere=True)]
    third = world.connect()
    need = third.prerequisite()
    assert need is not None
    world.clear(third, need)
    talk.did("q")
    assert world.text() == "q"


# -- after new records


@pytest.mark.parametrize(("requests", "log"), [(97, "abc"), (98, "abca")])
def test_so_many_requests_show_that_a_client_waits_for_each_response(requests: int, log: str) -> None:
    """It has given up what it does not repeat in the second request after a time-out, the hundredth of all."""
    world = World()
    talk = world.connect()
    for time in range(requests):
        talk.did("x", time=time)
    request = talk.ask("a", time=200)
    talk.member.timed_out(request)
    talk.tell(request)
    talk.write(request)
    talk.did("b", time=201)
    talk.did("c", time=202)
    talk.did("a", time=200)
    assert world.text().lstrip("x") == log


def test_what_was_ready_goes_before_the_retry_of_what_another_connection_lost_meanwhile() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    for time in range(100):
        second.did("x", time=time)
    request = first.ask("a", time=200)
    second.did("b", time=201)
    first.write(request)
    first.close()
    second.did("a", time=200)
    assert world.text().lstrip("x") == "ba"


def test_a_client_with_one_request_in_flight_may_repeat_at_once_what_was_answered_too_late() -> None:
    world = World(ALONE)
    talk = world.connect()
    talk.did("z")
    talk.did_late("a")
    talk.did("a")
    assert world.text() == "za"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_timed_out_is_given_up_by_new_records_on_its_own_connection_only(order: Sequence[int]) -> None:
    for own, text in ((True, "aba"), (False, "ab")):
        world = World(ALONE)
        talks = [world.connect() for _ in order]
        first, second = (talks[at] for at in order)
        request = first.ask("a")
        first.member.timed_out(request)
        first.tell(request)
        first.write(request)
        (first if own else second).did("b")
        (second if own else first).did("a")
        assert world.text() == text


# -- requests that are read after the end of their connection


def test_a_request_is_dropped_though_its_connection_was_not_compared_in_full_any_more() -> None:
    world = World()
    lost(world.connect(), "b")
    talk, newer = world.connect(), world.connect()
    for number in range(RULES.settled_requests(1)):
        talk.did("c", time=60 + number)
    assert talk.check() is not None
    world.now += 100  # longer than the client waits for these responses: it has them
    newer.did("a", time=99)
    talk.wire.gone = True
    assert not talk.ask("a", time=99).sends


@pytest.mark.parametrize("newest", [0, 1])
def test_a_request_is_dropped_if_any_other_instance_had_the_partition_since(newest: int) -> None:
    other, world = World(), World()
    world.logs = other.logs
    for letter in "ab":
        other.connect().did(letter)
    times = [998.0, 998.0]
    times[newest] = 1000.5
    world.elsewhere = [
        Suspect(101 + number, 0, 31, elsewhere=True, recorded_at=time) for number, time in enumerate(times)
    ]
    talk = world.connect()
    talk.member.end(world.now)
    assert not talk.ask("c").sends


# -- other instances


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_equal_record_of_another_time_is_new_if_one_of_several_instances_may_have_answered(
    order: Sequence[int],
) -> None:
    world = World()
    talk = world.connect()
    answer = talk.ask("a", time=7)
    talk.close(reset=True)
    talk.write(answer)  # no response was ever written
    gone = Suspect(900, 0, 31, elsewhere=True, returned=True, recorded_at=900.0)
    lanes = [gone, Suspect(901, 0, 31, elsewhere=True)]
    world.elsewhere = [lanes[at] for at in order]
    world.connect().did("a", time=9)
    assert world.text() == "aa"


def test_what_the_client_may_have_received_here_stays_so_though_no_other_instance_answered() -> None:
    world = World()
    lost(world.connect())
    world.elsewhere = [Suspect(900, 0, 31, elsewhere=True, returned=True, recorded_at=900.0)]
    world.connect().did("a", time=9)
    assert world.text() == "aa"


# -- what was found in the log


def test_what_was_found_is_not_read_a_second_time_and_may_have_been_received() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    batch = bytes(first.ask("a").sends[0].batch)
    first.close()
    first.member.abandon(first.lane, world.now)
    world.log().append(batch)
    need = second.prerequisite()
    assert isinstance(need, Recover)
    world.clear(second, need)
    assert second.prerequisite() is None
    second.did("a", time=9)
    assert world.text() == "aa"


def test_of_a_lane_of_this_process_what_was_open_later_is_found_as_well() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    second.saw_older()
    requests = [first.ask(letter) for letter in "ab"]
    for request in requests:
        (send,) = request.sends
        lane = Suspect(first.lane.producer_id, 0, 31, frozenset({(0, send.sequence)}))
        world.log().append(bytes(send.batch))
        second.member.ledger.suspect(KEY, lane, world.now)
        need = second.prerequisite()
        assert need == Recover([lane], [KEY])
        world.clear(second, need)
    for letter in "ab":
        second.did(letter)
    assert world.text() == "ab"


# -- as time passes


def test_only_what_is_too_old_is_dropped_from_a_partition() -> None:
    world = World()
    lost(world.connect(), "a")
    world.now += 100
    lost(talk := world.connect(), "b")
    world.now += 21
    world.ledgers.sweep(world.now)
    assert talk.member.ledger.held == 1


def test_what_was_answered_too_late_is_kept_beside_what_is_too_old() -> None:
    world = World()
    talk = world.connect()
    talk.did_late("a")
    world.now += 100
    talk.did_late("b")
    talk.did("z")
    world.now += 21
    world.ledgers.sweep(world.now)
    talk.did("b")
    assert world.text() == "abz"


def test_only_lanes_that_were_abandoned_too_long_ago_are_not_fenced() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    second.saw_older()
    first.ask("a")
    second.ask("b")
    for talk in (first, second):
        talk.close()
    first.member.abandon(first.lane, world.now)
    world.now += 100
    second.member.abandon(second.lane, world.now)
    for seconds in (0, 21):
        world.now += seconds
        world.ledgers.sweep(world.now)
    need = world.connect().prerequisite()
    assert isinstance(need, Recover)
    assert [lane.producer_id for lane in need.lanes] == [second.lane.producer_id]


def test_of_what_one_connection_left_open_all_is_waited_for() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    answered, open_yet = first.ask("a"), first.ask("b")
    first.close()
    first.write(answered)
    assert second.prerequisite() == Settle([KEY])
    first.write(open_yet)
    assert isinstance(second.prerequisite(), ReadBack)


def test_a_producer_is_kept_until_its_connections_are_read_to_the_end() -> None:
    world = World()
    talk = world.connect()
    talk.member.end(world.now)
    world.ledgers.sweep(world.now)
    talk.ask("a")
    assert world.connect().prerequisite() == Settle([KEY])


# -- whether a request that is refused can be a retry


def repeats_none(talk: Talk, key: TrackKey = KEY, read_at: float | None = None) -> bool:
    """``read_at``: seconds; now, if not given."""
    read_at = talk.world.now if read_at is None else read_at
    return talk.member.ledger.repeats_none(talk.member, key, read_at)


@pytest.mark.parametrize(("rules", "none"), [(RULES, True), (ALONE, False)])
def test_a_request_repeats_nothing_where_all_is_known_unless_its_client_waits_for_each_response(
    rules: Rules, none: bool
) -> None:
    world = World(rules)
    talk = world.connect()
    world.connect()
    talk.did("a")
    assert repeats_none(talk) is none


def test_a_request_may_repeat_what_another_connection_lost_until_it_was_repeated() -> None:
    world = World()
    talk = world.connect()
    lost(world.connect())
    assert [repeats_none(talk, key) for key in (KEY, OTHER)] == [False, True]
    talk.did("a")
    assert repeats_none(talk)


def test_a_request_may_repeat_what_a_lane_wrote_that_is_not_fenced_yet() -> None:
    world = World()
    abandoned(world)
    assert [repeats_none(world.connect(), key) for key in (KEY, OTHER)] == [False, True]


def test_a_request_may_repeat_what_is_not_read_yet_of_a_connection_that_has_ended() -> None:
    world = World()
    talk, other = world.connect(), world.connect()
    other.member.end(world.now)
    assert not repeats_none(talk)
    other.member.drained()
    assert repeats_none(talk)


def test_a_request_may_repeat_what_another_connection_received_perhaps() -> None:
    world = World()
    talk, other = world.connect(), world.connect()
    other.did("a")
    assert [repeats_none(talk, key) for key in (KEY, OTHER)] == [False, True]


def test_a_request_may_repeat_what_a_connection_left_open() -> None:
    world = World()
    talk, other = world.connect(), world.connect()
    other.ask("a")
    other.close()
    assert [repeats_none(talk, key) for key in (KEY, OTHER)] == [False, True]


def test_a_request_may_repeat_a_time_out_of_its_own_connection_if_it_was_read_after_that() -> None:
    world = World()
    talk = world.connect()
    request = talk.ask("a")
    talk.member.timed_out(request)
    talk.tell(request)
    assert [repeats_none(talk, read_at=world.now + late) for late in (-0.1, 0.1)] == [True, False]


def test_a_request_may_repeat_what_was_answered_too_late() -> None:
    world = World()
    talk = world.connect()
    talk.did_late("a")
    talk.prerequisite()
    assert repeats_none(talk, OTHER)
    assert not repeats_none(talk, read_at=world.now - 5)


def test_a_request_may_repeat_one_that_was_refused_before_it_was_read() -> None:
    world = World()
    talk = world.connect()
    talk.did("a")
    talk.refuse("a", waited=0.5)
    assert [repeats_none(talk, read_at=world.now + late) for late in (-0.1, 0, 0.1)] == [True, False, False]


def test_where_a_client_may_have_been_at_another_instance_any_request_may_be_a_retry() -> None:
    """A client returned to an older connection, for which nobody has read what the other instance wrote."""
    assert not repeats_none(World(replace(RULES, fleet=True)).connect())


def used(talk: Talk) -> None:
    """A request of a connection is accepted."""
    answer = PendingProduce([PartitionData(KEY, 0, 0)], 1e9)
    talk.member.arrived(answer, talk.world.now)
    talk.member.ledger.claim(talk.member, answer, [KEY], talk.world.now)


@pytest.mark.parametrize("waits_before", [True, False])
@pytest.mark.parametrize("elsewhere", [True, False])
def test_the_retry_of_a_request_is_not_awaited_if_its_client_has_continued_elsewhere_since_it_was_sent(
    waits_before: bool, elsewhere: bool
) -> None:
    world = World()
    talk, other = world.connect(), world.connect()
    if waits_before:
        talk.member.waits([KEY])
    used(other if elsewhere else talk)
    talk.member.waits([KEY])
    talk.refuse("a")
    assert (KEY in talk.member.ledger.refused) is not (waits_before and elsewhere)


@pytest.mark.parametrize("outrun", [True, False])
def test_the_retry_of_a_request_of_a_connection_that_has_ended_is_awaited_unless_another_was_used_since(
    outrun: bool,
) -> None:
    world = World()
    talk = world.connect()
    talk.member.end(world.now)
    if outrun:
        used(world.connect())
    talk.refuse("a")
    assert (KEY in talk.member.ledger.refused) is not outrun


def test_a_request_of_no_connection_of_the_producer_may_be_retried() -> None:
    talk = World().connect()
    used(talk)
    ledger = talk.member.ledger
    ledger.refuse(KEY, Refused.of(None, 1.0, PendingProduce([], 1e9), []))
    assert KEY in ledger.refused


def test_a_request_that_overtook_a_retry_that_came_meanwhile_is_not_awaited() -> None:
    talk = World().connect()
    ledger, answer = talk.member.ledger, PendingProduce([], 1e9)
    first, second = (Refused.of(talk.member, 1.0, answer, [Digest(letter, 7)]) for letter in (b"a", b"b"))
    first.retry.end(2.0)
    assert ledger.refuse(KEY, second, first).retry is first.retry
    assert KEY not in ledger.refused


def test_an_accepted_request_ends_the_wait_for_the_retry_of_its_connection() -> None:
    talk = World().connect()
    ledger = talk.member.ledger
    talk.refuse("a")
    retry = ledger.refused[KEY].retry
    ledger.retried(talk.member, KEY, 1234.0)
    assert (retry.ended_at, ledger.refused) == (1234.0, {})


def test_a_request_that_waits_asks_a_few_of_many_connections_of_its_name() -> None:
    """Thousands of programs behind one address have no client.id of their own; each of them would ask all others."""
    world = World()
    others = [world.connect() for _ in range(300)]
    for other in others:
        other.wire.unread = 100
    talk = world.connect()
    talk.member.moved(2)
    talk.member.waits([KEY])
    waits_at = talk.member.sent_at
    marked = [other for other in others if other.member.sent_at == waits_at + 1 + others[::-1].index(other)]
    assert 0 < len(marked) < 100
    assert others[-1] in marked


def test_of_a_client_that_sends_a_few_bytes_at_a_time_not_each_time_is_remembered() -> None:
    world = World()
    former, leader = world.connect(), world.connect()
    leader.member.moved(2)
    for _ in range(1000):
        former.wire.unread += 1
        leader.member.waits([KEY])
        last = leader.member.sent_at
        leader.member.waits_no_more()
    assert former.member.sent_at < last - 1000
    former.wire.received, former.wire.unread = 500, 500
    assert former.member.sent_at == last + 1
