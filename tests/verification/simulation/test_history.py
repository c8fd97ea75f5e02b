"""Claims."""

from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from tests.verification.simulation.worlds import client
from verification.simulation.clock import VirtualClock
from verification.simulation.history import Attempt, History, Sent, State
from verification.simulation.link import Link
from verification.simulation.network import VirtualNetwork
from verification.simulation.plan import plain_client
from verification.simulation.wire import GIVE_UP_SECONDS


async def test_lines_bear_the_virtual_time(autojump_clock: trio.testing.MockClock) -> None:
    history = History()
    await trio.sleep(1.5)
    history.note("something")
    assert [line.split() for line in history.trace] == [["1.5000", "something"]]


@pytest.fixture
def network(autojump_clock: trio.testing.MockClock) -> VirtualNetwork:
    network = VirtualNetwork(1, VirtualClock(autojump_clock), lambda: 0.0)
    network.takers["kproxy", 1] = ("client", lambda _: None)
    return network


def attempt(link: Link, arrives: float = 1.0) -> Attempt:
    return Attempt(link, link.up.written, arrives)


def sent(number: int = 3, value: bytes = b"a", **more: Any) -> Sent:
    return Sent(client(number=number), 0, 0, value, **more)


async def test_a_retry_is_unseen_while_the_connection_before_is_half_open(network: VirtualNetwork) -> None:
    history, (old, new) = History(untimed=True), (network.connect("a", "kproxy", 1) for _ in range(2))
    record, late = sent(), sent(value=b"b")
    history.sends(record, attempt(old))
    history.sends(late, Attempt(old, old.up.written + 1, 1.0))  # vanishes before it arrives
    old.vanish()
    history.sends(record, attempt(old))
    assert not record.unseen  # its own connection
    for one in record, late:
        history.sends(one, attempt(new))
    assert (record.unseen, late.unseen) == (True, False)


async def test_a_retry_is_seen_once_a_half_open_connection_was_given_up(
    network: VirtualNetwork, autojump_clock: trio.testing.MockClock
) -> None:
    history, (old, new) = History(), (network.connect("a", "kproxy", 1) for _ in range(2))
    soon, later = sent(), sent(value=b"b")
    for one in soon, later:
        history.sends(one, attempt(old))
    old.vanish()
    history.sends(soon, attempt(new, trio.current_time() + GIVE_UP_SECONDS))
    assert not soon.unseen
    await trio.sleep(GIVE_UP_SECONDS + 1)
    history.sends(later, attempt(new, trio.current_time()))
    assert not later.unseen


async def test_with_timestamps_a_direct_connection_that_was_left_is_known(network: VirtualNetwork) -> None:
    history, (old, new) = History(), (network.connect("a", "kproxy", 1) for _ in range(2))
    record, returned = sent(), sent(value=b"b")
    history.sends(record, attempt(old))
    history.sends(returned, attempt(new))
    for link in old, new:
        link.vanish()
    history.sends(record, attempt(new))
    history.sends(returned, attempt(old))
    assert (record.unseen, returned.unseen) == (False, True)


async def test_a_retry_that_overtakes_the_end_of_its_connection_is_unseen_if_the_record_itself_did_not_come_with_it(
    network: VirtualNetwork,
) -> None:
    history, (old, new) = History(untimed=True), (network.connect("a", "kproxy", 1) for _ in range(2))
    first, last = sent(), sent(value=b"b")
    history.sends(first, attempt(old))
    old.rounds.append((0.0, 0.0))
    old.near.send_at_once([b"x" * 10])
    end = old.up.last_arrival
    history.sends(last, Attempt(old, old.up.written, end))
    old.near.close()
    for one in first, last:
        history.sends(one, attempt(new, end / 2))
    assert (first.unseen, last.unseen) == (True, False)  # kproxy waits for the end that follows it


async def test_kproxy_may_wait_no_more_for_the_end_of_a_connection_of_one_of_two_processes(
    network: VirtualNetwork,
) -> None:
    history, (old, new) = History(), (network.connect("a", "kproxy", 1) for _ in range(2))
    record, twin = sent(), Sent(replace(client(number=4), client_id="c3", host=client(number=3).host), 0, 0, b"b")
    assert (twin.client.client_id, twin.client.host) == (record.client.client_id, record.client.host)
    history.sends(twin, attempt(new))
    old.rounds.append((0.0, 0.0))
    old.near.send_at_once([b"x" * 10])
    history.sends(record, Attempt(old, old.up.written, old.up.last_arrival))
    old.near.close()
    history.sends(record, attempt(new, old.up.last_arrival / 2))
    assert record.unseen


@pytest.mark.parametrize("reads", [False, True])
async def test_a_program_that_did_not_read_what_its_kernel_has_is_unseen_when_its_network_breaks(
    network: VirtualNetwork, autojump_clock: trio.testing.MockClock, reads: bool
) -> None:
    history, (old, new) = History(), (network.connect("a", "kproxy", 1) for _ in range(2))
    record = sent()
    history.sends(record, attempt(old))
    old.far.send_at_once([b"answer"])
    await trio.sleep(1)
    if reads:
        old.down.inbox.clear()
    old.vanish()
    history.sends(record, attempt(new))
    assert record.unseen != reads


async def test_an_equal_record_is_mixed_up_with_one_whose_connection_broke(network: VirtualNetwork) -> None:
    history, (old, new) = History(), (network.connect("a", "kproxy", 1) for _ in range(2))
    had, again, more, fresh = (sent(state=State.OK) for _ in range(4))
    history.sends(had, attempt(old))
    history.sends(again, attempt(old))
    assert not (again.mixed or again.doubts)  # the connection stands, and nothing went wrong
    history.sends(more, attempt(new))
    for one in had, again, more:
        one.evident = True
    history.sends(fresh, attempt(new))
    assert not (fresh.mixed or fresh.doubts)
    old.cut()
    old.far.close()
    assert [doubt.arose for doubt in more.doubts] == [True, True]


@pytest.mark.parametrize(
    ("seconds", "timestamp", "is_mergeable"), [(4.0, 7, True), (1.0, 7, False), (4.0, 8, False), (None, 7, False)]
)
async def test_one_that_came_long_after_it_on_its_connection_is_if_its_timestamp_is_equal(
    network: VirtualNetwork, seconds: float | None, timestamp: int, is_mergeable: bool
) -> None:
    history, link = History(), network.connect("a", "kproxy", 1)
    had, again = (sent(state=State.OK, timestamp=time) for time in (7, timestamp))
    history.sends(had, attempt(link, 1.0))
    history.sends(again, attempt(link, 1.5))
    if seconds is not None:
        again.answered_at = 1.0 + seconds
    assert again.is_mergeable is is_mergeable


async def test_it_is_not_if_the_connection_ended_in_good_order_after_the_response(
    network: VirtualNetwork, autojump_clock: trio.testing.MockClock
) -> None:
    history, (old, new) = History(), (network.connect("a", "kproxy", 1) for _ in range(2))
    had, again, declared = (sent(state=State.OK) for _ in range(3))
    history.sends(had, attempt(old))
    old.near.close()
    await trio.sleep(1)
    old.far.close()
    history.sends(again, attempt(new))
    assert not again.mixed
    assert [doubt.arose for doubt in again.doubts] == [False]
    history.declared = True  # something in between ends TCP
    history.sends(declared, attempt(new))
    assert declared.mixed


@pytest.mark.parametrize("renews", [False, True])
async def test_an_equal_record_without_its_own_time_is_mixed_up_with_one_whose_retry_nobody_could_see(
    network: VirtualNetwork, autojump_clock: trio.testing.MockClock, renews: bool
) -> None:
    history, (old, new, newest) = History(), (network.connect("a", "kproxy", 1) for _ in range(3))
    plan = replace(client(number=3), renews_timestamps=renews)
    one, two = (Sent(plan, 0, 0, b"a", timestamp) for timestamp in (7, 8))
    history.sends(one, attempt(old))
    one.unseen = True
    history.sends(one, attempt(new))
    one.state = State.OK
    new.near.close()
    await trio.sleep(1)
    new.far.close()
    history.sends(two, attempt(newest))
    assert two.is_mergeable == renews


async def test_an_equal_record_is_mixed_up_with_one_whose_request_went_amiss(network: VirtualNetwork) -> None:
    history, link = History(), network.connect("a", "kproxy", 1)
    refused, on_its_way, known, later = sent(), sent(state=State.OPEN), sent(state=State.OK), sent()
    for one in refused, on_its_way, known:
        history.sends(one, attempt(link))
    history.goes_amiss([refused])
    history.sends(later, attempt(link))
    assert [one.mixed for one in (refused, on_its_way, known, later)] == [False, True, False, True]


@pytest.mark.parametrize(
    ("asked", "read", "port", "later", "two"),
    [
        (2.0, 2.1, 1, 0.9, True),
        (2.0, 2.1, 1, 0.1, False),  # kproxy may have taken the other one for the older one
        (1.0, 2.1, 1, 0.9, False),
        (2.0, 10.5, 1, 0.9, False),
        (None, 0.0, 1, 0.9, False),
        (2.0, 2.1, 2, 0.9, False),  # a process has a connection to each broker
    ],
)
async def test_what_another_process_of_the_name_sends_is_mixed_up_unless_there_are_surely_two(
    network: VirtualNetwork,
    autojump_clock: trio.testing.MockClock,
    asked: float | None,
    read: float,
    port: int,
    later: float,
    two: bool,
) -> None:
    history, mine = History(), network.connect("a", "kproxy", 1)
    await trio.sleep(later)
    other = network.connect("a", "kproxy", 1)
    other.port = port
    had = sent()
    late, known = (
        Sent(plain_client(4, (), client_id="c3", host=had.client.host), 0, 0, b"a", state=State.OK) for _ in range(2)
    )
    history.sends(had, attempt(mine))
    other.used_at = 1.0
    if asked is not None:
        mine.rounds.append((asked, read))
    await trio.sleep(10)
    mine.far.close()
    history.sends(late, attempt(other))
    had.evident = True
    history.sends(known, attempt(other))
    assert [any(doubt.arose for doubt in one.doubts if doubt.link is mine) for one in (late, known)] == [not two, False]


async def test_with_a_kproxy_dies_what_it_knew_of_answers() -> None:
    history = History()
    had = sent(state=State.OK, evident=True)
    history.records.append(had)
    history.crashed(1, 0.0)
    assert had.evident
    history.crashed(0, 0.0)
    assert not had.evident


async def test_a_kproxy_that_dies_knew_nothing_of_a_client_that_has_moved() -> None:
    history = History()
    had = sent(state=State.OK, evident=True)
    history.records.append(had)
    history.moved(had.client, 1)
    assert not had.evident
    had.evident = True
    history.crashed(0, 0.0)
    assert had.evident
    history.crashed(1, 0.0)
    assert not had.evident


async def test_a_record_is_resumed_when_it_is_first_sent_again_after_its_kproxy_died_or_was_left(
    network: VirtualNetwork,
) -> None:
    history, link = History(), network.connect("a", "kproxy", 1)
    record, fresh = sent(tries=1), sent(value=b"b")
    history.records += [record, fresh]
    history.sends(record, attempt(link))
    history.moved(record.client, 1)
    history.sends(fresh, attempt(link, 2.0))
    assert (record.resumed_at, fresh.resumed_at) == (-1.0, -1.0)
    for arrives in 3.0, 4.0:
        history.sends(record, attempt(link, arrives))
        assert record.resumed_at == 3.0
    history.crashed(1, 5.0)
    history.sends(record, attempt(link, 6.0))
    assert record.resumed_at == 6.0
