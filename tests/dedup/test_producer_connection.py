"""What one connection's client has had, and what it may send again."""

from dataclasses import replace
from math import inf

import pytest

from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import PartitionData
from kproxy.dedup.digest import UNTIMED, Digest
from kproxy.dedup.lanes import TrackKey
from kproxy.dedup.producer_connection import Suspect
from kproxy.dedup.retry_ledger import ReadBack, Recover, Settle
from kproxy.dedup.retry_rules import Rules
from kproxy.dedup.unconfirmed import PendingProduce
from kproxy.proxy.retries import digests_at
from tests.dedup.talk import ANSWER_BYTES, KEY, LIMIT, OTHER, Talk, World, batch_of
from tests.dedup.wires import ALONE, CLEAN_WINDOW, RULES


def test_a_response_that_was_never_sent_is_unconfirmed_after_the_end() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.write(first.ask("ab"))
    first.close()
    second.did("ab", time=9)  # surely not had: the time does not matter
    assert world.text() == "ab"


def test_an_open_batch_is_waited_for_and_then_found() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    request = first.ask("a")
    first.close()
    assert second.prerequisite() == Settle([KEY])
    changes = world.changes
    first.write(request)
    assert world.changes > changes
    second.did("a")
    assert world.text() == "a"


def test_what_was_found_stays_unconfirmed_until_its_answer_is_had() -> None:
    world = World()
    talks = [world.connect() for _ in range(3)]
    for talk in talks:
        talk.write(talk.ask("a"))
        talk.close(reset=True)
    assert world.text() == "a"


def test_later_requests_show_that_an_answer_was_received() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.did("a")
    for letter in "bcdefg":
        first.did(letter)
    first.close(reset=True)
    second.did("a")
    assert world.text() == "abcdefga"


def test_equal_records_on_one_connection_are_kept() -> None:
    world = World()
    talk = world.connect()
    for _ in range(3):
        talk.did("a")
    assert world.text() == "aaa"


def test_an_answer_that_was_acknowledged_long_ago_was_received() -> None:
    world = World()
    first, second, third = world.connect(), world.connect(), world.connect()
    first.did("a")
    first.member.look_between(world.now)
    world.now += 120
    first.close(reset=True)
    second.did("a")
    second.member.look_between(world.now)
    world.now += 120
    second.wire.missing = 10
    second.close(reset=True)
    third.did("a")
    assert world.text() == "aa"


def test_another_live_connection_repeats_nothing() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.did("a")
    second.did("a")
    assert world.text() == "aa"


def test_a_late_answer_is_no_evidence_on_the_same_connection() -> None:
    world = World()
    talk = world.connect()
    request = talk.ask("a", due=world.now + 1)
    talk.write(request)
    world.now += 2
    talk.tell(request)
    talk.did("a")
    assert world.text() == "a"


@pytest.mark.parametrize("rules", [RULES, ALONE], ids=["several in flight", "one in flight"])
@pytest.mark.parametrize("stuck", ["network", "kernel"])
@pytest.mark.parametrize(("patience", "text"), [(1, "a"), (9, "aa")], ids=["too late", "in time"])
def test_an_answer_that_arrives_late_is_no_evidence_on_the_same_connection(
    rules: Rules, stuck: str, patience: float, text: str
) -> None:
    """The client did not read for a while, gave up the request, and sends it again over the same connection."""
    world = World(rules)
    talk = world.connect()
    request = talk.ask("a", due=world.now + patience)
    talk.write(request)
    talk.tell(request)
    if stuck == "kernel":
        talk.wire.written = 0
    else:
        talk.wire.missing = ANSWER_BYTES
    world.now += 2
    talk.member.look_between(world.now)
    talk.wire.written, talk.wire.missing = talk.position, 0
    talk.member.look_between(world.now)
    talk.did("a")
    assert world.text() == text


@pytest.mark.parametrize(("late", "reset", "text"), [(False, False, "aa"), (False, True, "a"), (True, False, "a")])
def test_an_end_in_good_order_proves_as_much_where_only_the_acknowledgement_was_late(
    late: bool, reset: bool, text: str
) -> None:
    """A route was cut after the client had read the response; its acknowledgement and FIN came seconds later.

    Not where the response itself was given too late (``late``): the client may have thrown it away.
    """
    world = World()
    first, second = world.connect(), world.connect()
    request = first.ask("a", due=world.now + 1, time=UNTIMED)
    first.write(request)
    world.now += 2 if late else 0
    first.tell(request)
    first.wire.missing = ANSWER_BYTES
    world.now += 6
    first.member.look_between(world.now)
    first.wire.missing = 0
    first.close(reset=reset)
    second.did("a", time=UNTIMED)
    assert world.text() == text


def test_records_without_timestamps_are_new_though_an_answer_arrived_late() -> None:
    world = World()
    talk = world.connect()
    request = talk.ask("a", due=world.now + 1, time=UNTIMED)
    talk.write(request)
    talk.tell(request)
    talk.wire.missing = ANSWER_BYTES
    world.now += 2
    talk.member.look_between(world.now)
    talk.wire.missing = 0
    talk.did("a", time=UNTIMED)
    assert world.text() == "aa"


@pytest.mark.parametrize(("waited", "after", "log"), [(1.5, "a", "aa"), (1.5, "aa", "aa"), (0.5, "a", "a")])
@pytest.mark.parametrize("closes", [False, True])
def test_the_retry_of_what_was_refused_is_not_that_of_an_equal_request_with_a_late_answer(
    waited: float, after: str, log: str, closes: bool
) -> None:
    """The second request was read before the client could give up the first one; or later, as its retry may be."""
    world = World()
    talk = world.connect()
    request = talk.ask("a", due=world.now + 1)
    talk.write(request)
    world.now += 2
    talk.refuse("a", waited=waited)
    talk.tell(request)
    if closes:
        talk.close()
        talk = world.connect()
    for letter in after:
        talk.did(letter)
    assert world.text() == log


def test_what_was_refused_while_a_batch_was_open_may_be_its_retry_if_that_had_timed_out() -> None:
    world = World()
    talk = world.connect()
    first, second = talk.ask("a", due=world.now + 1), talk.ask("b", due=world.now + 3)
    world.now += 1
    talk.member.timed_out(first)
    talk.tell(first)
    talk.member.review(world.now)
    world.now += 1
    talk.refuse("a", waited=0.5)
    for request in (first, second):
        talk.write(request)
    talk.did("a")
    assert world.text() == "ab"


def test_what_was_refused_may_be_a_retry_from_a_connection_whose_end_was_not_seen_yet() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.write(first.ask("a"))
    second.ask("b", due=world.now + 1)
    second.refuse("a", waited=0.1)
    first.close()
    second.did("a")
    assert world.text() == "a"


def test_of_several_equal_requests_that_were_refused_each_is_written() -> None:
    world = World()
    talk = world.connect()
    request = talk.ask("a", due=world.now + 1)
    talk.write(request)
    world.now += 2
    for waited in (1.5, 1.4):
        talk.refuse("a", waited=waited)
    world.now += 0.1
    talk.refuse("a")  # a retry of one of them
    talk.tell(request)
    for _ in range(3):
        talk.did("a")
    assert world.text() == "aaa"


def test_the_retry_of_what_was_refused_may_come_over_another_connection() -> None:
    """The error sent the client to another broker; the response to an equal record is lost later."""
    world = World()
    talk, other = world.connect(), world.connect()
    request = talk.ask("z")
    talk.refuse("a", waited=0.5)
    talk.write(request)
    talk.tell(request)
    other.did("a")
    other.did("a")
    talk.close()
    other.close(reset=True)
    world.connect().did("a")
    assert world.text() == "zaa"


def test_what_was_timed_out_is_waited_for_and_found_on_the_same_connection() -> None:
    world = World()
    talk = world.connect()
    request = talk.ask("a")
    talk.member.timed_out(request)
    talk.tell(request)
    assert talk.prerequisite() == Settle([KEY])
    changes = world.changes
    talk.write(request)
    assert world.changes > changes  # or who waits would wait until its own time-out
    talk.did("a", time=9)
    assert world.text() == "a"


def test_what_succeeded_beside_a_time_out_may_have_been_received() -> None:
    """Another time is another record there: the client had the success, and sends something equal."""
    world = World()
    talk = world.connect()
    request = talk.ask("a", keys=(KEY, OTHER))
    talk.write(request, key=KEY)
    talk.member.timed_out(request, told=[KEY])
    talk.tell(request)
    talk.write(request)
    talk.did("a", keys=(KEY, OTHER), time=9)
    assert (world.text(KEY), world.text(OTHER)) == ("aa", "a")


@pytest.mark.parametrize(("keys", "text"), [((KEY, OTHER), "a"), ((KEY,), "aa")])
def test_successes_beside_an_error_are_retried_with_the_whole_request(keys: tuple[TrackKey, ...], text: str) -> None:
    world = World()
    talk = world.connect()
    request = talk.ask("a", keys=(KEY, OTHER))
    talk.write(request)
    request.failed, request.failures = True, [OTHER]
    talk.tell(request)
    talk.did("a", keys=keys)
    assert world.text() == text


def test_a_success_beside_an_error_was_received_though_the_answer_to_its_repeat_is_lost() -> None:
    """Another time is another record there, too."""
    world = World()
    first, second = world.connect(), world.connect()
    request = first.ask("a", keys=(KEY, OTHER))
    first.write(request)
    request.failed, request.failures = True, [OTHER]
    first.tell(request)
    first.write(first.ask("a", keys=(KEY, OTHER)))
    first.close()
    second.did("a")
    assert world.text() == "a"
    second.did("a", time=9)
    assert world.text() == "aa"


def test_a_request_may_name_a_partition_twice() -> None:
    world = World()
    talk = world.connect()
    request = talk.ask("a", keys=(KEY, KEY))
    talk.member.timed_out(request)
    talk.write(request)
    assert not isinstance(talk.prerequisite(), Settle)


def test_a_client_that_waits_for_each_answer_has_given_up_what_is_open() -> None:
    world = World(ALONE)
    talk = world.connect()
    request = talk.ask("a")
    assert talk.prerequisite() == Settle([KEY])
    talk.write(request)
    talk.did("a")
    assert world.text() == "a"


def test_after_its_first_new_record_it_has_given_up_the_rest() -> None:
    """An old value must not be told for a new one: what is in between would be the last."""
    world = World(ALONE)
    first, second = world.connect(), world.connect()
    first.write(first.ask("a"))
    first.close()
    second.did("b")
    second.did("a")
    assert world.text() == "aba"


def test_what_it_has_given_up_comes_over_no_other_connection_either() -> None:
    world = World(ALONE)
    first, second = world.connect(), world.connect()
    first.write(first.ask("a"))
    first.did("b")
    first.close(reset=True)
    second.did("a")
    assert world.text() == "aba"


def test_it_waits_for_nothing_that_it_had_given_up_when_it_sent_something_new() -> None:
    world = World(ALONE)
    first, second = world.connect(), world.connect()
    second.saw_older()
    first.ask("a")
    second.did("b")
    first.close()
    assert second.prerequisite() is None


@pytest.mark.parametrize(("rules", "prerequisite"), [(RULES, None), (ALONE, Settle([KEY]))], ids=["pipelines", "waits"])
def test_after_the_end_of_a_connection_its_pipelined_requests_do_not_wait_for_each_other(
    rules: Rules, prerequisite: Settle | None
) -> None:
    """All that a client pipelined is read, also after the connection has ended: these are no retries of each other."""
    world = World(rules)
    talk = world.connect()
    talk.ask("a")
    talk.wire.gone = True
    talk.member.end(world.now)
    assert talk.prerequisite() == prerequisite


def test_new_records_before_old_ones_in_one_request_do_not_hide_these() -> None:
    """A converted request may become several batches."""
    world = World(ALONE)
    first, second = world.connect(), world.connect()
    first.write(first.ask("a"))
    first.close()
    second.did("b", "a")
    assert world.text() == "ab"


def test_few_requests_do_not_show_that_a_client_waits_for_each_answer() -> None:
    """After a crash the first request that arrives may be the last that the client had in flight."""
    world = World()
    first, second = world.connect(), world.connect()
    first.write(first.ask("a"))
    first.close()
    second.did("b")
    second.did("a")
    assert world.text() == "ab"


def waiting() -> tuple[World, Talk]:
    """A client that was seen to wait for each response."""
    world = World()
    talk = world.connect()
    for at in range(100):
        talk.did("x", time=at)
    return world, talk


def told_a_time_out() -> tuple[World, Talk]:
    """Such a client that received a time-out then; its batch was written after it."""
    world, talk = waiting()
    request = talk.ask("a", time=200)
    talk.member.timed_out(request)
    talk.tell(request)
    talk.write(request)
    return world, talk


def seen(world: World) -> str:
    return world.text().removeprefix(100 * "x")


def test_a_client_that_waits_may_have_had_a_request_ready_when_it_read_an_error() -> None:
    """librdkafka with max.in.flight 1: the next request was made before, and goes first."""
    world, talk = told_a_time_out()
    talk.did("b", time=201)
    talk.did("ac", time=200)
    assert seen(world) == "abc"


@pytest.mark.parametrize("ends", [False, True])
def test_what_was_ready_may_go_to_a_new_leader_before_the_retry_does(ends: bool) -> None:
    """librdkafka continues there while the former leader owes a response, or before it sees that connection end."""
    world, former = told_a_time_out()
    leader = world.connect()
    leader.member.moved(2)
    if ends:
        former.close(reset=True)
    leader.did("b", time=201)
    leader.did("a", time=200)
    assert seen(world) == "ab"


def test_it_has_one_ready_not_two() -> None:
    world, talk = told_a_time_out()
    talk.did("b", time=201)
    talk.did("c", time=202)
    talk.did("a", time=200)
    assert seen(world) == "abca"


@pytest.mark.parametrize(("after", "log"), [("c", "abc"), ("cd", "abcda")])
def test_what_was_ready_may_follow_a_refused_retry(after: str, log: str) -> None:
    """The refused request may have been the retry, which nothing shows that its client gave up."""
    world, talk = told_a_time_out()
    talk.did("b", time=201)
    talk.refuse()
    for record in after:
        talk.did(record, time=202)
    talk.did("a", time=200)
    assert seen(world) == log


def test_a_client_with_one_request_in_flight_gives_up_what_it_does_not_repeat_after_a_refusal() -> None:
    world = World(ALONE)
    talk = world.connect()
    request = talk.ask("a")
    talk.member.timed_out(request)
    talk.tell(request)
    talk.write(request)
    talk.refuse()
    talk.did("b")
    talk.did("a")
    assert world.text() == "aba"


def test_after_what_was_ready_an_equal_record_of_another_time_is_new() -> None:
    world, talk = told_a_time_out()
    talk.did("b", time=201)
    talk.did("a", time=202)
    assert seen(world) == "aba"


def test_a_success_beside_an_error_is_retried_after_what_was_ready() -> None:
    world, talk = waiting()
    request = talk.ask("a", keys=(KEY, OTHER))
    talk.write(request)
    request.failed, request.failures = True, [OTHER]
    talk.tell(request)
    talk.did("b")
    talk.did("a", keys=(KEY, OTHER))
    assert seen(world) == "ab"


def test_a_request_after_the_end_is_dropped_if_another_connection_brought_it() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.wire.gone = True
    second.did("a")
    request = first.ask("ab")
    assert not request.sends
    first.member.drained()
    assert world.text() == "a"


@pytest.mark.parametrize("calm", [True, False])
def test_a_request_after_the_end_is_dropped_if_an_older_connection_brought_it(calm: bool) -> None:
    """A client has a connection to each broker; a partition's leader has moved there and back."""
    world = World()
    older = world.connect()
    older.member.moved(1)
    older.did("z")
    world.now += 1
    newer = world.connect()
    newer.member.moved(2)
    if not calm:
        newer.did("y")
    world.now += 1
    older.did("ab")
    newer.wire.gone = True
    assert not newer.ask("a").sends
    assert not newer.ask("b").sends
    newer.member.drained()
    assert world.text() == ("zab" if calm else "zyab")


def test_a_request_after_the_end_is_written_if_an_older_connection_used_its_partition_only_before() -> None:
    """Some clients close their connection without waiting for the response."""
    world = World()
    older = world.connect()
    older.did("z")
    older.close()
    another = world.connect()
    world.now += 1
    newer = world.connect()
    world.now += 1
    another.did("x", keys=[OTHER])
    newer.wire.gone = True
    newer.write(newer.ask("a"))
    newer.close()
    assert world.text() == "za"


def test_a_request_after_the_end_is_written_if_nobody_brought_it_and_is_unconfirmed() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.wire.gone = True
    first.write(first.ask("a"))
    assert world.text() == "a"
    first.close()
    second.did("a")
    assert world.text() == "a"


def test_a_request_after_the_end_is_no_repeat_of_its_own_connections() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.did("a")
    first.wire.gone = True
    first.write(first.ask("a"))
    first.close()
    assert world.text() == "aa"
    second.did("a")
    second.did("a")
    assert world.text() == "aa"


def test_every_connection_waits_for_what_timed_out_on_one() -> None:
    world = World(ALONE)
    first, second = world.connect(), world.connect()
    second.did("z")
    request = second.ask("a")
    second.member.timed_out(request)
    assert first.prerequisite() == second.prerequisite() == Settle([KEY])


def test_a_time_out_may_be_repeated_on_another_live_connection() -> None:
    world = World(ALONE)
    first, second = world.connect(), world.connect()
    second.did("z")  # it was used for the partition before: the leader moves back to its broker
    request = first.ask("a")
    first.member.timed_out(request)
    first.write(request)
    second.did("a")
    assert world.text() == "za"


def test_a_connection_that_was_used_before_may_bring_what_another_lost() -> None:
    world = World(ALONE)
    first, second = world.connect(), world.connect()
    second.did("z")
    request = first.ask("a")
    first.write(request)
    first.close(reset=True)
    second.did("a")
    assert world.text() == "za"


def test_answers_that_are_being_written_may_have_been_had() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    request = first.ask("a")
    first.write(request)
    first.tell(request)
    first.wire.written, first.wire.writing = 0, 10  # the kernel took some, and the connection broke
    world.now += 1.5
    first.close(reset=True)
    second.did("a", time=9)
    assert world.text() == "aa"


@pytest.mark.parametrize("age", [0.5, 1.5, 30.0])
def test_a_missing_acknowledgement_does_not_make_an_equal_record_of_another_time_a_retry(age: float) -> None:
    """The client has read the response; its acknowledgement was late, or lost when the network was cut."""
    world = World()
    first, second = world.connect(), world.connect()
    first.did("a")
    first.wire.missing = 10
    world.now += age
    first.close(reset=True)
    second.did("a", time=9)
    assert world.text() == "aa"


def test_a_response_that_was_never_handed_over_makes_an_equal_record_of_another_time_a_retry() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.did("a")
    first.wire.written = 0  # the kernel had no room
    first.close(reset=True)
    second.did("a", time=9)
    assert world.text() == "a"


def test_what_nobody_will_learn_is_fenced_before_more_is_written() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    request = first.ask("a")
    first.close()
    late = bytes(request.sends[0].batch)
    first.member.abandon(first.lane, world.now)
    world.log().append(late)
    second.did("a")
    assert world.text() == "a"


def test_suspects_go_with_the_window() -> None:
    world = World()
    first = world.connect()
    first.ask("a")
    first.close()
    first.member.abandon(first.lane, world.now)
    ledger = first.member.ledger
    assert not ledger.idle
    world.now += 121
    world.ledgers.sweep(world.now)
    assert ledger.idle


@pytest.mark.parametrize("node_id", [0, 2])
def test_what_goes_to_the_new_leader_waits_for_what_went_to_the_former_one(node_id: int) -> None:
    world = World()
    former, leader, twin = world.connect(), world.connect(), world.connect()
    twin.saw_older()
    leader.member.moved(node_id)
    request = former.ask("a")
    assert leader.prerequisite() == Settle([KEY])
    assert twin.prerequisite() is None  # another process of that name, at the same broker
    changes = world.changes
    former.write(request)
    assert world.changes == changes + 1
    former.tell(request)
    leader.did("b")
    former.did("c")
    assert (world.text(), world.changes) == ("abc", changes + 1)


def test_of_two_that_wait_the_earlier_one_is_taken_first() -> None:
    world = World()
    former, leader = world.connect(), world.connect()
    leader.member.moved(2)
    former.member.waits([KEY])
    assert leader.prerequisite() == Settle([KEY])
    leader.member.waits([KEY])
    former.member.waits([KEY])
    assert (former.prerequisite(), leader.prerequisite()) == (None, Settle([KEY]))
    changes = world.changes
    former.member.waits_no_more()
    assert world.changes == changes + 1
    assert leader.prerequisite() is None
    leader.member.waits_no_more()
    assert world.changes == changes + 1


def test_what_waits_at_one_broker_is_not_overtaken_by_what_needed_no_look_at_another() -> None:
    world = World()
    older = world.connect()
    older.did("z")
    newer = world.connect()
    newer.member.moved(2)
    assert older.prerequisite() is None
    newer.member.waits([KEY])
    assert older.prerequisite() == Settle([KEY])
    newer.member.waits_no_more()
    older.did("a")
    newer.member.waits([OTHER])
    assert older.prerequisite() is None


def waiting_for_unread() -> tuple[World, Talk, Talk]:
    """A request to a new leader waits, since there are requests unread to the former one."""
    world = World()
    former, leader = world.connect(), world.connect()
    former.did("z")
    leader.member.moved(2)
    former.wire.unread = 100
    assert leader.prerequisite() == Settle([KEY])
    leader.member.waits([KEY])
    return world, former, leader


def test_what_was_not_read_yet_at_the_former_leader_is_not_overtaken() -> None:
    world, former, leader = waiting_for_unread()
    former.member.waits([KEY])
    assert former.prerequisite() is None
    former.member.waits_no_more()
    changes = world.changes
    former.wire.read()
    assert world.changes == changes + 1
    former.wire.unread = 100  # of a later time
    assert leader.prerequisite() is None


def test_what_was_unread_when_another_began_to_wait_was_sent_before_that() -> None:
    _, former, leader = waiting_for_unread()
    sent = leader.member.sent_at
    leader.member.waits_no_more()  # it is refused
    former.member.waits([KEY])
    assert former.member.sent_at < sent < leader.member.sent_at
    former.wire.read()
    former.member.waits_no_more()
    assert sent < former.member.sent_at


def moved_client() -> tuple[Talk, Talk]:
    """The connections of a client that keeps its order to a former and the new leader; requests are unread on both."""
    world = World()
    former, leader = world.connect(software="librdkafka"), world.connect(software="librdkafka")
    former.did("z")
    leader.member.moved(2)
    former.wire.unread = leader.wire.unread = 100
    return former, leader


def admits(talk: Talk, text: str) -> bool:
    return talk.member.ledger.admits(talk.member, KEY, digests_of(text), 1.0)


def refuse_in_order(talk: Talk, text: str) -> None:
    talk.member.ledger.refuse_in_order(talk.member, KEY, digests_of(text), 1.0, PendingProduce([], 1e9))


def digests_of(text: str) -> list[Digest]:
    return digests_at(batch_of(text), LIMIT)[0]


def test_what_is_unread_at_the_new_leader_waits_for_what_is_refused_at_the_former_one() -> None:
    former, leader = moved_client()
    refuse_in_order(former, "a")
    assert not admits(leader, "b")
    refuse_in_order(leader, "b")
    assert admits(leader, "ab")


def test_what_follows_a_refused_request_at_the_former_leader_is_awaited_before_what_was_unread_at_the_new_one() -> None:
    former, leader = moved_client()
    refuse_in_order(former, "a")
    former.wire.received, former.wire.unread = 10, 90  # one more request
    refuse_in_order(leader, "c")
    refuse_in_order(former, "b")
    leader.wire.read()
    assert not admits(leader, "ac"), "its client has not read that b was refused"
    assert admits(leader, "abc")


def test_a_retry_at_the_new_leader_waits_for_what_is_unread_where_its_neighbours_were_refused() -> None:
    """The former leader refused all that it was sent, so another connection was the last one to use the partition."""
    world = World()
    first, former, leader = world.connect(), world.connect(), world.connect()
    leader.member.moved(2)
    first.did("z")
    for text in "ab":
        refuse_in_order(former, text)
    former.wire.unread = 100
    assert leader.prerequisite() == Settle([KEY])
    former.wire.read()
    assert leader.prerequisite() is None


def test_what_is_unread_at_the_new_leader_was_sent_after_what_waits_at_the_former_one() -> None:
    former, leader = moved_client()
    former.member.waits([KEY])
    sent = former.member.sent_at
    refuse_in_order(former, "a")
    former.member.waits_no_more()
    assert sent < leader.member.sent_at
    assert not admits(leader, "b")


def test_a_request_that_began_to_wait_for_something_else_does_not_overtake_what_was_unread_then() -> None:
    """For a producer id, or for the outcome of a batch."""
    former, leader = moved_client()
    leader.member.waits([KEY])
    assert former.prerequisite() is None
    assert leader.prerequisite() == Settle([KEY])


def test_of_two_connections_with_unread_requests_the_one_that_was_sent_to_first_comes_first() -> None:
    world = World()
    one, two = world.connect(), world.connect()
    one.did("z")
    two.member.moved(2)
    two.did("y", keys=(OTHER,))
    one.wire.unread = two.wire.unread = 100
    assert two.prerequisite() == Settle([KEY])
    two.member.waits([KEY])
    request = PendingProduce([PartitionData(OTHER, 0, 0)], 1e9)
    assert one.prerequisite(request) == Settle([OTHER])
    changes = world.changes
    one.member.waits([OTHER])
    assert world.changes > changes
    assert one.prerequisite(request) is None
    assert two.prerequisite() == Settle([KEY])


def test_one_that_waits_learns_that_the_other_one_goes_to_the_same_broker() -> None:
    world = World()
    former, leader = world.connect(), world.connect()
    former.member.moved(2)
    leader.member.waits([KEY])  # until it is connected, and more
    assert former.prerequisite() == Settle([KEY])
    former.member.waits([KEY])
    changes = world.changes
    leader.member.moved(2)
    assert world.changes > changes
    assert former.prerequisite() is None


def test_nothing_waits_for_a_connection_that_has_ended() -> None:
    world = World()
    former, leader = world.connect(), world.connect()
    leader.member.moved(2)
    former.member.waits([KEY])
    former.close()
    assert leader.prerequisite() is None


def test_a_connection_that_waits_with_another_partition_holds_up_nothing() -> None:
    world = World()
    former, leader = world.connect(), world.connect()
    leader.member.moved(2)
    former.member.waits([OTHER])
    assert leader.prerequisite() is None


def test_those_that_wait_for_a_connection_are_woken_when_it_ends() -> None:
    world = World()
    former, leader = world.connect(), world.connect()
    leader.member.moved(2)
    former.member.waits([KEY])
    assert leader.prerequisite() == Settle([KEY])
    changes = world.changes
    former.close()
    assert world.changes > changes


def test_fifty_requests_do_not_show_yet_that_a_client_waits_for_each_answer() -> None:
    world = World()
    talk = world.connect()
    for at in range(50):
        talk.did("x", time=at)
    request = talk.ask("a", time=200)
    talk.member.timed_out(request)
    talk.tell(request)
    talk.write(request)
    talk.did("b", time=201)
    talk.did("c", time=202)
    talk.did("a", time=200)
    assert world.text() == 50 * "x" + "abc"


def test_a_client_that_had_two_requests_in_flight_once_does_not_wait_for_each_answer() -> None:
    world, talk = waiting()
    pipelined = [talk.ask("y"), talk.ask("z")]
    for request in pipelined:
        talk.write(request)
        talk.tell(request)
    request = talk.ask("a", time=200)
    talk.member.timed_out(request)
    talk.tell(request)
    talk.write(request)
    talk.did("b", time=201)
    talk.did("c", time=202)
    talk.did("a", time=200)
    assert seen(world) == "yzabc"


def test_only_requests_without_an_answer_count_as_in_flight() -> None:
    world = World()
    talk = world.connect()
    request = talk.ask("a")
    talk.write(request)
    talk.tell(request)
    talk.wire.written = 0  # the kernel has not taken the response yet
    talk.ask("b")
    assert talk.member.ledger.depth == 1
    talk.ask("c")
    assert talk.member.ledger.depth == 2
    talk.member.pipelined(1)
    assert talk.member.ledger.depth == 2


def test_a_request_that_timed_out_does_not_count_as_in_flight() -> None:
    world = World()
    talk = world.connect()
    talk.member.timed_out(talk.ask("a"))
    talk.ask("b", keys=(OTHER,))
    assert talk.member.ledger.depth == 1


def test_no_number_of_requests_shows_that_a_missing_answer_was_received() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    letters = "abcdefghijklmnopqrst"
    for request in [first.ask(letter) for letter in letters]:
        first.write(request)
    first.close(reset=True)
    for letter in letters:
        second.did(letter, time=9)
    assert world.text() == letters


def test_an_error_counts_as_read_though_the_kernel_has_perhaps_not_taken_all_of_it() -> None:
    """The client's retry says so."""
    world = World()
    talk = world.connect()
    request = talk.ask("a", keys=(KEY, OTHER))
    talk.write(request)
    request.failed, request.failures = True, [OTHER]
    talk.tell(request)
    talk.wire.written, talk.wire.writing = 0, 10
    talk.did("a", keys=(KEY, OTHER))
    assert world.text() == "a"


@pytest.mark.parametrize("time", [7, UNTIMED])
def test_what_succeeded_beside_an_error_that_came_too_late_is_retried_also_by_itself(time: int) -> None:
    world = World()
    talk = world.connect()
    request = talk.ask("a", keys=(KEY, OTHER), due=world.now + 1, time=time)
    talk.write(request)
    request.failed, request.failures = True, [OTHER]
    world.now += 2
    talk.tell(request)
    talk.did("a", time=time)
    assert world.text() == "a"


def test_what_was_timed_out_is_matched_once() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    request = first.ask("a")
    first.member.timed_out(request)
    first.tell(request)
    first.write(request)
    first.close(reset=True)
    second.did("a")
    second.did("a")
    assert world.text() == "aa"


def test_what_became_definite_before_its_lane_is_abandoned_is_matched_once() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    request = first.ask("a")
    first.close()
    first.write(request)
    first.member.abandon(first.lane, world.now)
    second.did("a")
    second.did("a")
    assert world.text() == "aa"


def test_what_was_answered_too_late_is_matched_once_also_while_the_rest_is_read() -> None:
    world = World()
    talk = world.connect()
    request = talk.ask("a", due=world.now + 1)
    talk.write(request)
    world.now += 2
    talk.tell(request)
    talk.did("x")
    talk.wire.gone = True
    talk.member.end(world.now)
    talk.write(talk.ask("aa"))
    assert world.text() == "axa"


def test_an_answer_that_came_too_late_proves_nothing_however_long_the_connection_lived() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    request = first.ask("a", due=world.now + 1)
    first.write(request)
    world.now += 2
    first.tell(request)
    world.now += 100
    first.close()
    second.did("a")
    assert world.text() == "a"


@pytest.mark.parametrize(("missing", "reset", "text"), [(0, False, "aa"), (10, False, "a"), (0, True, "a")])
def test_only_an_end_in_good_order_after_an_acknowledged_answer_shortens_the_window(
    missing: int, reset: bool, text: str
) -> None:
    """Records without timestamps: nothing else tells a retry from an equal record."""
    world = World()
    first, second = world.connect(), world.connect()
    first.did("a", time=UNTIMED)
    first.wire.missing = missing
    first.close(reset=reset)
    world.now += CLEAN_WINDOW + 1
    second.did("a", time=UNTIMED)
    assert world.text() == text


@pytest.mark.parametrize(("patience", "text"), [(9, "aa"), (1, "a")], ids=["in time", "too late"])
def test_what_is_read_after_the_end_may_repeat_only_what_its_connection_was_answered_too_late(
    patience: float, text: str
) -> None:
    world = World()
    talk = world.connect()
    request = talk.ask("a", due=world.now + patience)
    talk.write(request)
    world.now += 2
    talk.tell(request)
    talk.wire.gone = True
    talk.member.end(world.now)
    talk.write(talk.ask("a"))
    assert world.text() == text


def test_an_abandoned_lane_is_not_fenced_where_all_that_it_sent_is_settled() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    request = first.ask("a", keys=(KEY, OTHER))
    first.write(request, key=KEY)
    first.close()
    first.member.abandon(first.lane, world.now)
    assert isinstance(second.prerequisite(), ReadBack)
    second.did("a")
    assert second.prerequisite() is None
    assert world.text() == "a"


def test_a_batch_that_the_broker_refused_is_not_searched_in_the_log() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    request = first.ask("a")
    (send,) = request.sends
    send.track.answered(send, ErrorCode.MESSAGE_TOO_LARGE, -1, -1)
    send.track.refuse(send, ErrorCode.MESSAGE_TOO_LARGE)
    first.member.closed(request, world.now)
    first.tell(request)
    first.close(reset=True)
    assert second.prerequisite() is None


def test_a_success_that_the_client_may_have_read_makes_its_record_of_another_time_a_new_one() -> None:
    world = World()
    first, second, third = (world.connect() for _ in range(3))
    first.write(first.ask("a"))
    first.close()
    second.did("a")
    second.close(reset=True)
    third.did("a", time=9)
    assert world.text() == "aa"


def test_a_repeat_whose_success_was_returned_beside_a_time_out_may_have_been_received() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.write(first.ask("a"))
    first.close()
    request = second.ask("a", keys=(KEY, OTHER))
    second.member.timed_out(request, told=[KEY])
    second.tell(request)
    second.write(request)
    second.did("a", keys=(KEY, OTHER), time=9)
    assert (world.text(KEY), world.text(OTHER)) == ("aa", "a")


def test_a_repeat_that_received_nothing_beside_a_time_out_was_not_received() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.write(first.ask("a"))
    first.close()
    request = second.ask("a", keys=(KEY, OTHER))
    second.member.timed_out(request, told=[OTHER])
    second.tell(request)
    second.write(request)
    second.did("a", keys=(KEY,), time=9)
    assert world.text(KEY) == "a"


class TestSuspect:
    LANE = Suspect(7, 3, 5)

    @pytest.mark.parametrize(
        ("batch", "wrote"),
        [
            ((7, 3, 9), True),
            ((7, 5, 9), True),
            ((7, 2, 9), False),
            ((7, 6, 9), False),
            ((6, 4, 9), False),
            ((8, 4, 9), False),
        ],
    )
    def test_it_wrote_what_has_its_producer_id_and_epochs(self, batch: tuple[int, int, int], wrote: bool) -> None:
        assert self.LANE.wrote(*batch) is wrote

    def test_of_a_lane_of_this_process_only_what_is_open_is_searched(self) -> None:
        lane = replace(self.LANE, only=frozenset({(4, 9)}))
        assert [lane.wrote(7, *batch) for batch in ((4, 9), (4, 8), (5, 9))] == [True, False, False]

    def test_its_marker_is_above_its_epochs(self) -> None:
        assert self.LANE.fence_epoch == 6

    def test_until_when_another_instance_used_it(self) -> None:
        assert not self.LANE.elsewhere
        other = replace(self.LANE, elsewhere=True, recorded_at=50.0)
        assert [one.in_use_until for one in (other, replace(other, returned=True))] == [inf, 50.0]


@pytest.mark.parametrize(("later", "log"), [("bcdef", "abcdef"), ("bcdefg", "abcdefga")])
def test_an_answer_was_received_once_as_many_requests_followed_as_may_be_in_flight(later: str, log: str) -> None:
    world = World()
    first, second = world.connect(), world.connect()
    for letter in "a" + later:
        first.did(letter)
    first.close(reset=True)
    second.did("a")
    assert world.text() == log


def test_a_client_that_had_more_in_flight_reads_an_answer_later() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    requests = [first.ask(letter) for letter in "abcdefgh"]
    for request in requests:
        first.write(request)
        first.tell(request)
    for letter in "ijklmno":
        first.did(letter)
    first.close(reset=True)
    second.did("h")
    assert world.text() == "abcdefghijklmno"


def test_an_answer_that_the_kernel_has_not_taken_was_not_received_however_many_requests_follow() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    request = first.ask("a")
    first.write(request)
    first.tell(request)
    first.wire.written = 0
    for letter in "bcdefgh":
        first.write(first.ask(letter))
    first.close(reset=True)
    second.did("a")
    assert world.text() == "abcdefgh"


def test_after_a_late_answer_an_equal_record_of_another_time_is_new() -> None:
    world = World()
    talk = world.connect()
    request = talk.ask("a", due=world.now + 1)
    talk.write(request)
    world.now += 2
    talk.tell(request)
    talk.did("a", time=9)
    assert world.text() == "aa"


def test_a_request_that_is_read_after_the_end_is_waited_for() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.member.end(world.now)
    first.ask("a")
    assert second.prerequisite() == Settle([KEY])


def test_a_connection_that_has_ended_goes_to_no_other_broker() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.member.end(world.now)
    first.member.moved(3)
    second.did("a")
    assert world.text() == "a"


def test_a_request_for_another_partition_is_not_waited_for_at_another_broker() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    for node_id, talk in enumerate((first, second)):
        talk.member.moved(node_id)
    first.ask("a", keys=[OTHER])
    assert second.prerequisite() is None


def test_a_request_that_is_refused_while_all_others_were_answered_makes_nothing_uncertain() -> None:
    world = World()
    talk = world.connect()
    talk.did("a")
    for letter in "bcdefg":
        talk.did(letter, keys=[OTHER])
    talk.refuse("a", waited=0.5)
    assert talk.member.ledger.is_calm(talk.member, PendingProduce([PartitionData(KEY, 0, 0)], 1e9))


def test_what_was_refused_may_be_the_retry_of_one_of_several_requests() -> None:
    world = World()
    talk = world.connect()
    first, second = talk.ask("a", due=world.now + 1), talk.ask("b", due=world.now + 100)
    world.now += 2
    talk.refuse("a", waited=0.5)
    for request in (first, second):
        talk.write(request)
        talk.tell(request)
    talk.did("a")
    assert world.text() == "ab"


def test_a_refused_request_without_records_makes_nothing_uncertain() -> None:
    world = World()
    talk = world.connect()
    talk.did("a")
    talk.refuse()
    assert talk.member.ledger.is_calm(talk.member, PendingProduce([PartitionData(KEY, 0, 0)], 1e9))


def test_a_time_out_may_make_the_client_send_the_request_again() -> None:
    talk = World().connect()
    request = talk.ask("a")
    talk.member.timed_out(request, told=[OTHER])
    assert (request.timed_out, request.failed, request.given_up, request.told) == (True, True, True, [OTHER])


def test_an_end_in_good_order_does_not_shorten_the_window_of_an_answer_that_came_too_late() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    request = first.ask("a", due=world.now + 1, time=UNTIMED)
    first.write(request)
    world.now += 2
    first.tell(request)
    first.close()
    world.now += CLEAN_WINDOW + 1
    second.did("a", time=UNTIMED)
    assert world.text() == "a"


def test_without_timestamps_nothing_repeats_a_late_answer_while_its_connection_lives() -> None:
    """Who had given it up would have closed that: the client has its success, and sends an equal record."""
    world = World()
    talk = world.connect()
    request = talk.ask("a", due=world.now + 1, time=UNTIMED)
    talk.write(request)
    world.now += 2
    talk.tell(request)
    talk.did("b", time=UNTIMED)
    talk.did("a", time=UNTIMED)
    assert world.text() == "aba"
    talk.close(reset=True)
    world.connect().did("a", time=UNTIMED)
    assert world.text() == "aba"


def test_the_window_of_an_answer_that_came_too_late_begins_when_its_connection_ends() -> None:
    world = World()
    first, second = world.connect(), world.connect()
    request = first.ask("a", due=world.now + 1)
    first.write(request)
    world.now += 2
    first.tell(request)
    first.did("b")
    world.now += RULES.window - 10
    first.close(reset=True)
    world.now += RULES.window - 10
    second.did("a")
    assert world.text() == "ab"


def test_a_retry_begins_the_window_again() -> None:
    world = World()
    for _ in range(3):
        talk = world.connect()
        talk.write(talk.ask("a"))
        talk.close()
        world.now += RULES.window - 10
    assert world.text() == "a"


def test_what_may_have_been_received_once_stays_so_after_a_retry_without_an_answer() -> None:
    world = World()
    first, second, third = (world.connect() for _ in range(3))
    first.did("a")
    first.close(reset=True)
    second.write(second.ask("a"))
    second.close()
    third.did("a", time=9)
    assert world.text() == "aa"


def test_what_was_given_up_unlooked_at_is_known_at_the_end() -> None:
    world = World(ALONE)
    first, second = world.connect(), world.connect()
    for letter in "ab":
        first.did(letter)
    first.write(first.ask("c"))
    first.did("d")
    first.close(reset=True)
    second.did("c")
    assert world.text() == "abcdc"


def test_what_a_client_that_seems_to_wait_has_passed_may_come_over_another_connection() -> None:
    world, talk = waiting()
    request = talk.ask("q", due=world.now + 1)
    talk.write(request)
    world.now += 2
    talk.tell(request)
    for letter in "yz":
        talk.did(letter)
    talk.close(reset=True)
    world.connect().did("q")
    assert world.text().count("q") == 1


def test_a_repeat_beside_new_records_is_not_given_up_by_these() -> None:
    world = World(ALONE)
    first, second, third = (world.connect() for _ in range(3))
    first.write(first.ask("a"))
    first.close()
    second.write(second.ask("b", "a"))
    second.close()
    third.did("b", "a")
    assert world.text() == "ab"


def late_and_timed_out(world: World, *, late_first: bool) -> Talk:
    """A connection with two equal requests in flight: one was answered too late, the other received a time-out."""
    talk = world.connect()
    requests = [talk.ask("a", due=world.now + 1), talk.ask("a", due=world.now + 1)]
    timed_out = requests[late_first]
    world.now += 2
    talk.member.timed_out(timed_out)
    for request in requests:
        talk.write(request)
        talk.tell(request)
    return talk


@pytest.mark.parametrize("late_first", [False, True])
def test_of_equal_records_the_one_that_received_an_error_is_the_likeliest(late_first: bool) -> None:
    """Its retry comes for certain; that of the other one only if the client discarded the response."""
    talk = late_and_timed_out(World(), late_first=late_first)
    (again,) = talk.ask("a").moved
    assert again.stamp.base_offset == late_first


def timed_out_twice(world: World) -> Talk:
    """A connection with two equal requests in flight, both of which received a time-out and were written."""
    talk = world.connect()
    requests = [talk.ask("a", due=world.now + 1), talk.ask("a", due=world.now + 1)]
    world.now += 2
    for request in requests:
        talk.member.timed_out(request)
        talk.tell(request)
        talk.write(request)
    return talk


def test_of_equal_records_that_received_errors_the_newest_is_the_likeliest() -> None:
    talk = timed_out_twice(World())
    (again,) = talk.ask("a").moved
    assert again.stamp.base_offset == 1


@pytest.mark.parametrize(("waited", "offsets"), [(0.0, [0]), (1.5, [1, 0])])
def test_two_retries_that_came_together_are_not_taken_for_one_though_the_first_is_answered_late(
    waited: float, offsets: list[int]
) -> None:
    """The second was read before the first was due: it is the other's retry."""
    world = World()
    talk = timed_out_twice(world)
    first = talk.ask("a", due=world.now + 1)
    world.now += 2
    talk.member.closed(first, world.now)
    talk.tell(first)
    second = PendingProduce([PartitionData(KEY, 0, 0)], 1e9, world.now - 2 + waited)
    talk.member.review(world.now)
    found = talk.member.ledger.candidates(talk.member, KEY, second, world.now)
    assert [entry.stamp.base_offset for entry in found] == offsets


def test_a_request_does_not_wait_for_an_equal_one_that_its_client_could_not_give_up_before_it() -> None:
    """It was read when the other one was not due: it is new, whatever becomes of that one."""
    world = World()
    talk = world.connect()
    slow = talk.ask("a", due=world.now + 1)
    second = PendingProduce([PartitionData(KEY, 0, 0)], 1e9, world.now)
    world.now += 2
    talk.member.timed_out(slow)
    assert talk.prerequisite() == Settle([KEY])
    assert talk.prerequisite(second) is None
    talk.write(slow)
    assert isinstance(talk.prerequisite(), ReadBack)
    assert talk.prerequisite(second) is None


def test_one_refused_request_is_not_the_retry_of_another() -> None:
    """The first of three equal requests is answered late; the other two were refused unsent, at different times."""
    world = World()
    talk = world.connect()
    talk.ask("z")
    slow = talk.ask("a", due=world.now + 1)
    talk.refuse("a")
    read_at = world.now - 0.5
    world.now += 0.1
    third = PendingProduce([PartitionData(KEY, 0, 0)], 1e9, read_at)
    assert talk.member.ledger.candidates(talk.member, KEY, third, world.now) == []
    fourth = PendingProduce([PartitionData(KEY, 0, 0)], 1e9, world.now)
    assert [entry.written for entry in talk.member.ledger.candidates(talk.member, KEY, fourth, world.now)] == [False]
    assert not slow.closed


def test_after_the_retry_of_a_time_out_an_equal_record_of_another_time_is_new() -> None:
    """Though an equal one was answered before it, so late that its client may have discarded the response."""
    world = World()
    talk = late_and_timed_out(world, late_first=True)
    talk.did("a")
    talk.did("a", time=9)
    assert world.text() == "aaa"


def test_a_request_has_waited_from_its_first_wait_until_it_is_accepted() -> None:
    member = World().connect().member
    serial = member.ledger.outside.next_serial
    before = serial()
    assert not member.waited_at(before)
    member.waits([KEY])
    after = serial()
    member.waits([KEY])
    assert [member.waited_at(at) for at in (before, after)] == [False, True]
    member.waits_no_more()
    assert not member.waited_at(serial())


def test_no_request_is_taken_without_a_look_after_the_end() -> None:
    world = World()
    talk = world.connect()
    talk.did("a")
    world.now += 100  # longer than the client waits for the response: it has it
    talk.member.end(world.now)
    world.elsewhere = [Suspect(900, 0, 31, elsewhere=True)]
    assert isinstance(talk.prerequisite(), Recover)


def test_a_new_connection_has_no_broker_yet() -> None:
    assert World().connect().member.node_id == -1
