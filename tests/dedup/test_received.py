"""What a client has received, and whose retry a record is: scripts of connections, acknowledgements and ends."""

from array import array
from dataclasses import replace

import pytest

from kproxy.codec.produce_layout import PartitionData
from kproxy.dedup import producer_connection
from kproxy.dedup.digest import UNTIMED, Digests
from kproxy.dedup.origin import Silence
from kproxy.dedup.retry_ledger import ReadBack, SeeEnd, Settle
from kproxy.dedup.unconfirmed import PendingProduce
from tests.dedup.talk import ANSWER_BYTES, KEY, OTHER, Talk, World
from tests.dedup.wires import ALONE, CLEAN_WINDOW, RULES

AUTO = replace(RULES, in_flight=None)


# -- ends in good order


def test_equal_records_of_one_process_for_each_are_all_written() -> None:
    world = World(AUTO)
    for state in "ococo":
        process = world.connect()
        process.did(state, time=UNTIMED)
        process.close()
    assert world.text() == "ococo"


def test_what_runs_twice_is_written_twice() -> None:
    world = World(AUTO)
    for _ in range(2):
        process = world.connect()
        for _ in range(20):
            process.did("x", time=UNTIMED)
        process.close()
    assert world.text() == 40 * "x"


def test_a_response_that_is_in_flight_when_the_client_leaves_is_in_doubt() -> None:
    """The client reached its time-out, and closed its connection in good order."""
    world = World(AUTO)
    first, second = world.connect(), world.connect()
    first.did("a", time=UNTIMED)
    first.wire.missing = ANSWER_BYTES
    first.close()
    second.did("a", time=UNTIMED)
    assert world.text() == "a"


def test_where_something_on_the_way_may_have_closed_the_connection_equal_records_match() -> None:
    world = World(AUTO)
    for _ in range(2):
        process = world.connect(clean_window=CLEAN_WINDOW)
        process.did("a", time=UNTIMED)
        process.close()
    assert world.text() == "a"


def test_a_match_does_not_renew_the_time_in_which_equal_records_match() -> None:
    """A heartbeat every 4 s, of which one process each has the connection: of 9 one in 10 s is written."""
    world = World(AUTO)
    for _ in range(9):
        process = world.connect(clean_window=CLEAN_WINDOW)
        process.did("a", time=UNTIMED)
        process.close()
        world.now += 4
    assert world.text() == "aaa"


def test_a_broken_connection_keeps_equal_records_comparable_for_one_window_in_all() -> None:
    world = World(AUTO)
    for _ in range(4):
        process = world.connect()
        process.did("a", time=UNTIMED)
        process.close(reset=True)
        world.now += RULES.window / 2 + 1
    assert world.text() == "aa"


def test_records_with_equal_timestamps_match_after_an_end_in_good_order_as_well() -> None:
    """A relay that nobody has declared."""
    world = World(AUTO)
    for _ in range(2):
        process = world.connect()
        process.did("a")
        process.close()
        world.now += RULES.window - 1
    assert world.text() == "a"


# -- responses in transit


def test_requests_that_were_sent_while_a_response_was_in_flight_prove_nothing() -> None:
    """librdkafka: 1,500 records, one every millisecond, 100 ms one way, and the connection is reset twice."""
    world, delay, count = World(AUTO), 0.1, 1500
    talk = world.connect(software="librdkafka")
    #: By number of the record: when its response was written; and those that the client has read.
    given: dict[int, float] = {}
    read: set[int] = set()
    waiting, resets = list(range(count)), [500, 1000]
    while waiting:
        number = waiting.pop(0)
        world.now += 0.001
        read |= {one for one, at in given.items() if at <= world.now - delay}
        talk.wire.missing = ANSWER_BYTES * sum(at > world.now - 2 * delay for at in given.values())
        if resets and number == resets[0]:
            del resets[0]
            talk.close(reset=True)
            talk = world.connect(software="librdkafka")
            waiting = sorted({number, *waiting} | (given.keys() - read))
            given.clear()
            continue
        talk.did("x", time=number)
        given[number] = world.now
    assert world.log().end == count


@pytest.mark.parametrize(("missing", "log"), [(0, "aa"), (ANSWER_BYTES, "a")])
def test_requests_count_from_when_the_response_had_arrived(missing: int, log: str) -> None:
    world = World()
    first, second = world.connect(), world.connect()
    first.did("a")
    first.wire.missing = missing
    for time in range(100, 112):
        first.did("x", time=time)
        first.wire.missing += missing
    first.close(reset=True)
    second.did("a")
    assert world.text() == "a" + 12 * "x" + log[1:]


def test_the_time_that_a_connection_outlives_counts_from_when_the_response_had_arrived() -> None:
    """The client reads its responses late: at first its kernel has no room for this one, then it can't write either."""
    world = World(AUTO)
    first, second = world.connect(), world.connect()
    first.did("a", time=UNTIMED)
    first.wire.missing = ANSWER_BYTES
    world.now += 80
    first.wire.missing = 0
    first.member.look_between(world.now)
    world.now += 60
    first.close(reset=True)
    second.did("a", time=UNTIMED)
    assert world.text() == "a"


@pytest.mark.parametrize(("seconds", "log"), [(0.05, "a"), (0.3, "aa")])
def test_through_a_balancer_they_count_from_a_second_after_the_write(seconds: float, log: str) -> None:
    """Its kernel acknowledges what the client has not."""
    world = World()
    first, second = (world.connect(clean_window=CLEAN_WINDOW) for _ in range(2))
    first.did("a")
    for time in range(100, 112):
        world.now += seconds
        first.did("x", time=time)
    first.close(reset=True)
    second.did("a")
    assert world.text() == "a" + 12 * "x" + log[1:]


def heartbeats(world: World, talk: Talk, silence: float) -> None:
    """Three equal records without timestamps, one every so many seconds; then the connection breaks."""
    for _ in range(3):
        talk.did("h", time=UNTIMED)
        world.now += 0.1
        since = world.now
        talk.member.look_between(world.now)
        world.now += silence
        talk.silence = Silence(since, world.now)
    talk.did("h", time=UNTIMED)
    talk.close(reset=True)


@pytest.mark.parametrize(("silence", "unconfirmed"), [(5.0, 1), (0.5, 4)])
def test_a_request_after_a_silence_shows_that_what_had_arrived_before_was_read(
    silence: float, unconfirmed: int
) -> None:
    """A heartbeat: only the last one may be repeated by what the client sends next."""
    world = World(AUTO)
    heartbeats(world, world.connect(), silence)
    after = world.connect()
    for _ in range(5):
        after.did("h", time=UNTIMED)
    assert world.text() == (4 + 5 - unconfirmed) * "h"


def test_a_silence_proves_nothing_of_a_response_that_has_not_arrived() -> None:
    world = World(AUTO)
    talk = world.connect()
    talk.wire.missing = 1 << 20
    heartbeats(world, talk, 5.0)
    after = world.connect()
    for _ in range(5):
        after.did("h", time=UNTIMED)
    assert world.text() == 5 * "h"


def stood_still(world: World, ran: float) -> Talk:
    """A program that was stopped writes what it had ready, ``ran`` seconds later more, and closes its connection."""
    talk = world.connect()
    talk.did("a", time=1)
    talk.member.look_between(world.now)
    since, world.now = world.now, world.now + 40
    talk.silence = Silence(since, world.now)
    talk.did("b", time=2)
    world.now += ran
    talk.did("c", time=3)
    talk.close(reset=True)
    return world.connect()


@pytest.mark.parametrize(("ran", "text"), [(0.5, "abc"), (1.5, "abca")])
def test_a_program_that_stood_still_may_close_its_connection_before_it_reads(ran: float, text: str) -> None:
    """Once it has run for a while the same timestamp is another record's."""
    world = World(AUTO)
    stood_still(world, ran).did("a", time=1)
    assert world.text() == text


def test_a_record_with_another_timestamp_is_no_retry_of_what_was_likely_read() -> None:
    world = World(AUTO)
    again = stood_still(world, 0.5)
    again.did("a", time=9)
    again.did("a", time=UNTIMED)
    assert world.text() == "abcaa"


def test_what_was_likely_read_is_not_kept_after_an_end_in_good_order() -> None:
    world = World(AUTO)
    talk = world.connect()
    talk.did("a", time=1)
    talk.member.look_between(world.now)
    talk.silence = Silence(world.now, world.now + 5)
    world.now += 5
    talk.did("b", time=2)
    talk.close()
    assert not list(talk.member.ledger.found())


def test_a_client_that_waits_has_received_what_was_written_before_it_sent_more() -> None:
    """By its option: then the kernel is not asked."""
    world = World(ALONE)
    first, second = world.connect(), world.connect()
    first.wire.missing = 1 << 20
    first.did("a", time=1)
    first.did("b", time=2)
    first.did("c", time=3)
    first.close(reset=True)
    second.did("a", time=1)
    assert world.text() == "abca"


def test_the_kernel_is_asked_for_a_part_of_the_requests() -> None:
    world = World()
    talk = world.connect()
    asked = talk.wire.asked
    for time in range(300):
        talk.did("x", time=time)
    assert talk.wire.asked - asked <= 101


def test_what_a_connection_keeps_of_a_client_of_unknown_depth_is_bounded() -> None:
    world = World(AUTO)
    talk = world.connect(software="librdkafka")
    keys = [(b"t", number) for number in range(100)]
    for time in range(200):
        talk.did("x", keys=keys, time=time)
    assert len(talk.member.owed(keys[0])) < 64
    single = world.connect(software="librdkafka")
    for time in range(3000):
        single.did("x", time=time)
    assert 400 < len(single.member.owed((b"t", 0))) < 1600


def test_what_large_requests_show_need_not_be_read_back_from_the_log() -> None:
    """A client of unknown depth sends 1 MB every 0.1 s: at most 16 MiB wait between its program and kproxy."""
    world = World(AUTO)
    talk = world.connect(software="librdkafka")
    for time in range(300):
        world.now += 0.1
        talk.wire.received += 1_000_000
        talk.did("x", time=time)
        talk.member.look_between(world.now)
    assert 27 <= len(talk.member.owed(KEY)) < 70


def test_large_requests_show_nothing_of_a_response_that_has_not_arrived() -> None:
    world = World(AUTO)
    talk = world.connect(software="librdkafka")
    for time in range(100):
        world.now += 0.1
        talk.wire.received += 1_000_000
        talk.did("x", time=time)
        talk.wire.missing += ANSWER_BYTES
        talk.member.look_between(world.now)
    assert len(talk.member.owed(KEY)) == 100


def test_a_connection_that_outlives_every_time_out_confirms_what_had_arrived() -> None:
    world = World(AUTO)
    talk = world.connect(software="librdkafka")
    talk.did("a")
    assert talk.member.look_between(world.now)
    world.now += 120
    assert talk.member.look_between(world.now)  # a request may show it before: it is asked only where some arrive
    talk.did("b")
    talk.member.look_between(world.now)
    assert [answer.arrived_at for answer in talk.member.owed((b"t", 0))] == [world.now]


def test_what_had_no_response_may_have_been_retried_before_the_end_was_seen() -> None:
    """A half-open connection: the client has the success of its retry, and sends an equal record at another time."""
    world = World()
    first, second = world.connect(), world.connect()
    second.saw_older()
    request = first.ask("a", time=1)
    first.write(request)
    second.did("a", time=1)
    first.close(reset=True)
    second.did("a", time=2)
    assert world.text() == "aaa"


# -- whose retry it is


def one_breaks(world: World, one: Talk, other: Talk, *, missing: int = 0) -> str:
    """The log, where one program's response is lost, and the other one writes an equal record before its retry."""
    one.did("a", time=5)
    one.wire.missing = missing
    one.close(reset=True)
    other.did("a", time=5)
    world.connect().did("a", time=5)
    return world.text()


def test_of_two_programs_with_one_client_id_none_loses_a_record_to_the_others_lost_response() -> None:
    world = World()
    one, other = world.connect(), world.connect()
    for talk in one, other, one:
        world.now += 0.01
        talk.did("z", time=1)
    world.now += 0.01
    assert one_breaks(world, one, other, missing=ANSWER_BYTES) == "zzzaa"


@pytest.mark.parametrize("end", ["unread", "seen"])
def test_who_acknowledges_after_an_end_is_not_the_client(end: str) -> None:
    """A relay has ended a connection for its client, and reads on: its kernel acknowledges what kproxy still writes."""
    world = World()
    old = world.connect()
    request = old.ask("a", time=5)
    world.now += 0.01
    newer = world.connect()
    newer.saw_older()
    newer.did("z", time=1)
    world.now += 0.01
    old.write(request)
    old.tell(request)
    old.wire.unread = 1000 if end == "unread" else 0
    old.wire.gone = end == "seen"
    newer.did("y", time=2)
    old.wire.unread = 0
    old.close()
    newer.did("a", time=5)
    assert world.text() == "zay"


def test_the_same_where_the_broken_connection_was_opened_later() -> None:
    world = World()
    other, one = world.connect(), world.connect()
    for talk in other, one, other:
        world.now += 0.01
        talk.did("z", time=1)
    world.now += 0.01
    assert one_breaks(world, one, other) == "zzzaa"


def test_the_same_where_the_other_one_had_no_response_since() -> None:
    """The broken connection lived for too short a time; but a request of the older one arrives after it."""
    world = World()
    other = world.connect()
    other.did("z", time=1)
    world.now += 1
    one = world.connect()
    one.did("a", time=5)
    one.close(reset=True)
    world.now += 1
    other.empty_at = world.now
    other.did("a", time=5)
    world.connect().did("a", time=5)
    assert world.text() == "zaa"


def test_what_was_received_is_the_last_to_be_repeated() -> None:
    """Of two equal records of two programs the older one is in doubt; the response names its offset."""
    world = World()
    other = world.connect()
    one = world.connect()
    one.did("a", time=5)
    one.close(reset=True)
    other.did("z", time=1)
    other.world.log().append(bytes(one.world.log().batches[0][1]))
    received = other.member.ledger.candidates(other.member, KEY, PendingProduce([], 1e9), world.now)[0]
    newer = received.part([0])
    newer.serial, newer.clean, newer.offsets = received.serial + 1, True, array("q", [9])
    received.recall(newer.digests or Digests(), [0])
    other.member.ledger.add(newer)
    found = other.member.ledger.candidates(other.member, KEY, PendingProduce([], 1e9), world.now)
    assert [list(entry.offsets) for entry in found] == [[9], [0]]


def test_a_client_that_left_a_half_open_connection_is_the_same_program() -> None:
    """kproxy gives a response over the first connection while the client uses the second one: it never arrives."""
    world = World()
    first = world.connect()
    first.did("z")
    late = first.ask("a", time=5)
    world.now += 1
    second = world.connect()
    second.saw_older()
    second.did("y")
    world.now += 1
    first.write(late)
    first.tell(late)
    first.wire.missing = ANSWER_BYTES
    world.now += 1
    first.close(reset=True)
    second.did("a", time=5)
    assert world.text() == "zya"


def test_a_request_of_another_software_is_no_retry() -> None:
    world = World()
    first, second = world.connect(software="librdkafka"), world.connect(software="sarama")
    first.did("a")
    first.close(reset=True)
    second.did("a")
    world.connect().did("a")  # whose it is is not known
    assert world.text() == "aa"


def test_a_connection_that_needs_no_comparison_is_reviewed_all_the_same() -> None:
    """What another program has left does not slow this one down."""
    world = World()
    one, other = world.connect(software="librdkafka"), world.connect(software="sarama")
    one.did("a")
    one.close(reset=True)
    other.did("b")
    request = PendingProduce([], 1e9)
    assert other.member.ledger.is_calm(other.member, request)


# -- connections that their client has left


def test_a_retry_waits_for_what_an_older_connection_owes_and_is_recognised_once_that_was_left() -> None:
    """The network broke before the client could acknowledge, and healed when the client had given up."""
    world = World()
    old = world.connect()
    old.did("z", time=1)
    request = old.ask("a", time=5)
    newer = world.connect()
    assert newer.prerequisite() == Settle([KEY])
    old.wire.missing = ANSWER_BYTES
    old.write(request)
    old.tell(request)
    told_at = world.now
    assert newer.prerequisite() == SeeEnd(told_at + 0.02)
    newer.did("a", time=5)
    assert told_at + 1 <= world.now < told_at + 1.3
    assert old.member.ended
    newer.did("b")
    assert world.text() == "zab"


def test_a_client_that_acknowledges_has_not_left() -> None:
    world = World()
    old = world.connect()
    request = old.ask("a", time=5)
    newer = world.connect()
    old.write(request)
    old.tell(request)
    newer.did("a", time=5)
    assert not old.member.ended
    assert world.text() == "aa"


def test_without_equal_timestamps_what_was_left_unseen_is_not_matched() -> None:
    """The client may have read the response, and its acknowledgement was lost: the next process writes an equal one."""
    world = World(AUTO)
    old = world.connect()
    old.did("u", time=UNTIMED)
    old.wire.missing = ANSWER_BYTES
    world.now += 5
    world.connect().did("u", time=UNTIMED)
    assert old.member.ended
    assert world.text() == "uu"


@pytest.mark.parametrize(("reset", "text"), [(True, "u"), (False, "uu")], ids=["broken", "in good order"])
def test_once_the_end_is_seen_it_says_whether_records_without_timestamps_are_matched(reset: bool, text: str) -> None:
    world = World(AUTO)
    old, newer = world.connect(), world.connect()
    old.did("u", time=UNTIMED)
    old.wire.missing = ANSWER_BYTES
    world.now += 5
    newer.prerequisite()
    if not reset:
        old.wire.missing = 0
    old.close(reset=reset)
    newer.did("u", time=UNTIMED)
    assert world.text() == text


def test_a_response_that_came_too_late_and_is_not_acknowledged_was_left_too() -> None:
    world = World(AUTO)
    old = world.connect()
    request = old.ask("a", time=5, due=world.now + 3)
    old.wire.missing = ANSWER_BYTES
    old.write(request)
    old.tell(request)
    world.now += 4
    old.member.look_between(world.now)
    world.connect().did("a", time=5)
    assert world.text() == "a"


def beside_an_error(world: World) -> Talk:
    """A connection over which a success was answered beside another partition's error, and arrived."""
    talk = world.connect()
    talk.did("z", time=1)
    request = talk.ask("a", keys=(KEY, OTHER), time=5)
    talk.write(request)
    request.failed, request.failures = True, [OTHER]
    talk.tell(request)
    talk.member.look_between(world.now)
    return talk


def test_a_success_beside_an_error_may_be_repeated_over_a_newer_connection() -> None:
    """The client repeats the whole request, and the network is cut before it arrives."""
    world = World()
    old = beside_an_error(world)
    newer = world.connect()
    assert isinstance(newer.prerequisite(), SeeEnd)
    newer.did("a", time=5)
    assert old.member.ended
    assert world.text() == "za"


@pytest.mark.parametrize("pipelined", [False, True])
def test_a_client_that_has_gone_on_after_an_error_has_not_left(pipelined: bool) -> None:
    """Another program of the name writes an equal record at the same time.

    What the client may have sent before it read the error does not show that it has gone on: then it is the retry.
    """
    world = World()
    old = beside_an_error(world)
    old.empty_at = world.now + (0.9 if pipelined else 1.1)
    world.now += 1.2
    old.did("b", time=6)
    world.now += 5
    world.connect().did("a", time=5)
    assert old.member.ended == pipelined
    assert world.text() == ("zab" if pipelined else "zaba")


def test_what_was_sent_before_is_waited_for_though_it_is_accepted_later() -> None:
    """Both waited, for a producer id or for what is read back: the first request of a client that left its connection
    at once, and its retry.
    """
    world = World()
    old, newer = world.connect(), world.connect()
    old.member.waits([KEY])
    newer.member.waits([KEY])
    retried_while_it_waits(old, newer)
    assert world.text() == "a"


def retried_while_it_waits(old: Talk, newer: Talk) -> None:
    """A request that waited is accepted, and its response lost, while its retry waits over a newer connection."""
    request = old.ask("a", time=5)
    old.member.waits_no_more()
    assert newer.prerequisite() == Settle([KEY])
    old.wire.missing = ANSWER_BYTES
    old.write(request)
    old.tell(request)
    newer.did("a", time=5)


def test_a_request_that_waits_is_waited_for_by_what_comes_over_a_newer_connection() -> None:
    """The older one waits for the end of its connection, since another program of the name is there."""
    world = World()
    old = world.connect()
    old.did("z", time=1)
    old.wire.missing = ANSWER_BYTES
    world.now += 5
    twin = world.connect()
    twin.saw_older()
    twin.did("y", time=2)
    old.member.waits([KEY])
    assert isinstance(old.prerequisite(), SeeEnd)
    newer = world.connect()
    assert isinstance(newer.prerequisite(), SeeEnd)
    newer.member.waits([KEY])
    assert isinstance(newer.prerequisite(), SeeEnd)
    retried_while_it_waits(old, newer)
    assert world.text() == "zya"


def test_a_request_that_waits_is_waited_for_though_it_was_not_asked_since() -> None:
    """Both wait for what is read back. The newer one is asked first when that is there, and is the retry."""
    world = World()
    first = world.connect()
    first.did("z", time=1)
    first.close(reset=True)
    old = world.connect()
    old.member.waits([KEY])
    world.now += 2
    newer = world.connect()
    newer.member.waits([KEY])
    world.now += 0.1
    assert isinstance(newer.prerequisite(), SeeEnd)
    assert isinstance(old.prerequisite(), SeeEnd)
    world.now += 1
    assert not isinstance(old.prerequisite(), SeeEnd), "it waited in vain: its end is hidden, or it is another program"
    retried_while_it_waits(old, newer)
    assert world.text() == "za"


def test_what_is_accepted_while_a_request_waits_is_not_waited_for() -> None:
    """Else processes of one name that run at the same time would write one after the other."""
    world = World()
    old = world.connect()
    request = old.ask("a")
    newer = world.connect()
    newer.member.waits([KEY])
    old.ask("b")
    old.write(request)
    old.tell(request)
    assert newer.prerequisite() is None


def overtaken() -> tuple[World, Talk]:
    """A connection that was used, and another one of the same client that was used after it."""
    world = World()
    old = world.connect()
    old.did("z", time=1)
    world.now += 1
    world.connect().did("a", time=5)
    return world, old


def test_a_request_that_a_retry_has_overtaken_waits_for_the_end_of_its_connection_and_is_dropped() -> None:
    world, old = overtaken()
    begun = world.now
    assert old.prerequisite() == SeeEnd(begun + 1)
    old.close()
    assert not old.ask("a", time=5).sends
    assert world.text() == "za"


def test_a_request_waits_as_well_where_a_newer_connection_has_one_that_waits() -> None:
    world = World()
    old = world.connect()
    old.did("z", time=1)
    world.now += 1
    newer = world.connect()
    newer.member.waits([KEY])
    assert old.prerequisite() == SeeEnd(world.now + 1)
    newer.member.waits_no_more()
    newer.did("a", time=5)
    old.close()
    assert not old.ask("a", time=5).sends


def test_it_is_written_if_there_is_no_end_and_no_other_waits_again() -> None:
    world, old = overtaken()
    world.now += 0.5
    begun = world.now
    old.did("a", time=5)
    assert world.now == begun + 1
    world.connect().did("b")
    assert old.prerequisite() is None
    assert world.text() == "zaab"


def test_what_broke_while_it_waited_is_another_programs() -> None:
    """Two programs of one name: the request of the older one waits, and the other's connection breaks meanwhile."""
    world = World()
    old = world.connect()
    old.did("z", time=1)
    world.now += 1
    newer = world.connect()
    newer.member.waits([KEY])
    old.empty_at = world.now
    assert old.prerequisite() == SeeEnd(world.now + 1)
    world.now += 0.1
    newer.member.waits_no_more()
    newer.saw_older()
    assert one_breaks(world, newer, old, missing=ANSWER_BYTES) == "zaa"


def test_a_request_is_no_retry_of_what_came_over_a_connection_that_was_opened_after_it_was_read() -> None:
    world = World()
    world.connect().did("z", time=1)
    old = world.connect()
    read_at = world.now
    world.now += 1
    newer = world.connect()
    newer.did("a", time=5)
    newer.close(reset=True)
    keys = [PartitionData(KEY, 0, 0)]
    found = old.member.ledger.candidates
    assert not found(old.member, KEY, PendingProduce(keys, 1e9, read_at), world.now)
    assert found(old.member, KEY, PendingProduce(keys, 1e9, world.now), world.now)


def test_the_first_request_of_a_connection_that_was_just_opened_does_not_wait() -> None:
    """One process for each record, all of one name: whose request comes first is chance."""
    world = World()
    one, other = world.connect(), world.connect()
    other.did("a")
    assert one.prerequisite() is None


def test_a_request_does_not_wait_where_its_client_has_acknowledged_a_response_since() -> None:
    world = World()
    old, newer = world.connect(), world.connect()
    newer.saw_older()
    request = old.ask("z", time=1)
    world.now += 1
    newer.did("a", time=5)
    world.now += 1
    old.write(request)
    old.tell(request)
    assert old.prerequisite() is None


def test_a_request_of_a_client_with_a_pool_of_connections_does_not_wait() -> None:
    world = World(replace(RULES, connection_pools=("*",)))
    old = world.connect()
    old.did("z", time=1)
    world.now += 1
    world.connect().did("a", time=5)
    assert old.prerequisite() is None


def test_a_request_that_waited_for_others_of_its_connection_looks_again_as_soon_as_any() -> None:
    """All of them were read at once: a look that is as far away as that would have each of them wait twice as long."""
    world = World()
    older = world.connect()
    newer = world.connect()
    answer = older.ask("a")
    older.write(answer)
    older.wire.missing = ANSWER_BYTES
    older.tell(answer)
    read_at = world.now
    world.now += 0.3
    request = PendingProduce([PartitionData(KEY, 0, 0)], 1e9, read_at)
    for wait in (0.02, 0.02, 0.04):
        looks_again = newer.prerequisite(request)
        assert looks_again == SeeEnd(pytest.approx(world.now + wait))
        world.now += wait


def left_untaken(world: World, *, reads: bool = True, waits: bool = True) -> tuple[Talk, Talk]:
    """An older connection whose request waits, and a newer one: its client has the success of "a" over it."""
    older = world.connect()
    if waits:
        older.member.waits({OTHER})
    world.now += 2
    newer = world.connect()
    newer.saw_older()
    request = newer.ask("a", time=5)
    if reads:
        newer.write(request)
        newer.tell(request)
        newer.did("z")  # it waits for each response
    return older, newer


@pytest.mark.parametrize(("time", "text"), [(5, "az"), (6, "aza")])
def test_what_lies_untaken_after_a_request_that_waits_may_have_been_repeated_over_a_newer_connection(
    time: int, text: str
) -> None:
    """The connection is half-open: its request waits for something else, and the next one is not for that partition."""
    world = World(ALONE)
    older, _ = left_untaken(world)
    older.member.waits_no_more()
    older.did("a", time=time)
    assert world.text() == text


def test_what_is_kept_for_an_older_connection_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that repeats a large batch again and again over newer ones makes kproxy keep its records each time."""
    monkeypatch.setattr(producer_connection, "_MOST_OVERTOOK_BYTES", 20_000)
    world = World(ALONE)
    first = world.connect()
    first.did("abcdefghijklmnopqrstuvwxy" * 20, time=5)
    first.close(reset=True)
    older = world.connect()
    older.member.waits({OTHER})
    world.now += 2
    for _ in range(20):
        newer = world.connect()
        newer.saw_older()
        newer.did("abcdefghijklmnopqrstuvwxy" * 20, time=5)
        newer.close(reset=True)
    kept = [entry for entries in older.member.overtook.values() for entry in entries]
    assert 0 < len(kept) < 20
    assert sum(entry.size for entry in kept) <= 20_000


@pytest.mark.parametrize(("time", "text"), [(5, "abz"), (6, "abzab")])
def test_what_a_newer_connection_has_repeated_may_lie_untaken_over_an_older_one(time: int, text: str) -> None:
    """The request was written over a connection that broke. Its first retry is unread, and the second one overtakes it.

    The end of the older one follows what is unread, so that kproxy can't see it.
    """
    world = World(ALONE)
    first = world.connect()
    first.did("ab", time=5)
    first.close(reset=True)
    older = world.connect()
    older.member.waits({OTHER})
    world.now += 2
    newer = world.connect()
    newer.saw_older()
    newer.did("ab", time=5)
    newer.did("z")  # it waits for each response
    older.member.waits_no_more()
    older.did("a", time=time)
    older.did("b", time=time)
    assert world.text() == text


def test_a_request_that_waited_for_longer_than_its_client_may_have_been_repeated_itself() -> None:
    """The network hides the end of its connection for longer than the newer one waits for that."""
    world = World(ALONE)
    older = world.connect()
    older.member.waits({KEY})
    request = PendingProduce([PartitionData(KEY, 0, 0)], 1e9, world.now)
    world.now += 2
    newer = world.connect()
    newer.did("a", time=5)
    newer.did("z")
    while isinstance(found := older.prerequisite(request), SeeEnd | ReadBack):
        world.clear(older, found)
    assert found is None
    older.member.waits_no_more()
    older.did("a", time=5)
    assert world.text() == "az"


def test_the_first_request_of_a_connection_may_be_repeated_before_it_is_taken() -> None:
    """It waits from the start, and its client has left it within a second."""
    world = World(ALONE)
    older = world.connect()
    older.member.waits({KEY})
    newer = world.connect()
    newer.saw_older()
    newer.did("a", time=5)
    newer.did("z")
    older.member.waits_no_more()
    older.did("a", time=5)
    assert world.text() == "az"


def test_it_waits_for_what_is_open_over_the_newer_connection() -> None:
    world = World(ALONE)
    older, newer = left_untaken(world, reads=False)
    older.member.waits_no_more()
    world.now += 2
    assert older.prerequisite() == SeeEnd(older.member.outrun_at + 1)
    world.now += 2
    assert older.prerequisite() == Settle([KEY])
    changes = world.changes
    newer.write(next(iter(newer.parts)))
    assert world.changes > changes  # nothing else may happen that would have it look again
    assert older.prerequisite() != Settle([KEY])


def test_nothing_is_kept_for_a_connection_that_owes_nothing() -> None:
    older, _ = left_untaken(World(ALONE), waits=False)
    assert not older.member.overtook


def test_nor_for_one_whose_client_had_a_response_since() -> None:
    world = World(ALONE)
    older, newer = world.connect(), world.connect()
    for talk in older, newer, older:
        world.now += 0.01
        talk.did("z", time=1)
    older.member.waits({OTHER})
    newer.did("a", time=5)
    assert not older.member.overtook


def test_so_much_is_kept_of_what_overtakes_a_connection() -> None:
    world = World(ALONE)
    older, newer = left_untaken(world)
    for time in range(producer_connection._MOST_OVERTOOK + 10):
        newer.did("b", time=time)
    assert sum(map(len, older.member.overtook.values())) == producer_connection._MOST_OVERTOOK
    older.close(reset=True)
    assert not older.member.overtook


def test_what_overtakes_a_connection_ends_its_own_check_though_another_one_was_last_in_use() -> None:
    world = World()
    broken = world.connect()
    broken.did("x", time=1)
    broken.close(reset=True)
    older = world.connect()
    for _ in range(40):
        older.did("o", time=2)
    assert older.check() is not None
    world.now += 2
    newer = world.connect()
    newer.saw_older()
    for _ in range(40):
        newer.did("n", time=3)
    older.member.waits({OTHER})
    newer.did("a", time=5)
    newer.did("z", time=6)
    older.member.waits_no_more()
    older.did("a", time=5)
    assert world.text().endswith("naz")
