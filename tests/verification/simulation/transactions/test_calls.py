"""The connections of a client."""

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.codec._generated.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kproxy.codec.messages import Message
from tests.verification.simulation.transactions.peers import ADDRESS, Peer
from verification.simulation.transactions.routes import Route, Turn


def request(number: int) -> EndTxnRequest:
    return EndTxnRequest("id", number, 0, True)


def echo(asked: Any, _: int) -> Message | None:
    """The producer id as the error; 9 has no response."""
    return EndTxnResponse(error_code=asked.producer_id) if asked.producer_id != 9 else None


async def test_requests_of_a_connection_are_answered_in_order(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    peer = Peer(nursery, echo, silent=False)
    calls = peer.calls()
    answers: list[Any] = await calls.ask_all(ADDRESS, [request(n) for n in range(3)], 3)
    assert [answer.error_code for answer in answers] == [0, 1, 2]
    answer: Any = await calls.ask(ADDRESS, request(4), 3)
    assert answer.error_code == 4
    assert {connection for connection, _ in peer.asked} == {1}
    calls.close()


async def test_what_was_answered_before_the_connection_ended_is_reported(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    peer = Peer(nursery, echo, silent=False)
    calls = peer.calls()
    answers = await calls.ask_all(ADDRESS, [request(1), request(9), request(2)], 3)
    assert len(answers) == 1
    with pytest.raises(OSError, match="no answer"):
        await calls.ask(ADDRESS, request(9), 3)
    await calls.ask(ADDRESS, request(1), 3)
    assert peer.asked[-1][0] == 3
    calls.close()


async def test_a_connection_without_an_answer_in_time_is_given_up(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    peer = Peer(nursery, echo, silent=True)
    calls = peer.calls(timeout=2.0)
    began = trio.current_time()
    with pytest.raises(OSError, match="no answer"):
        await calls.ask(ADDRESS, request(9), 3)
    assert trio.current_time() == pytest.approx(began + 2.0)
    await calls.ask(ADDRESS, request(1), 3)
    assert [connection for connection, _ in peer.asked] == [1, 2]
    calls.close()


async def test_a_request_that_is_held_up_comes_late_over_the_old_connection(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    peer = Peer(nursery, echo, silent=False)
    late = [5.0]
    calls = peer.calls(timeout=2.0, held_up=lambda _: late.pop() if late else 0.0)
    with pytest.raises(OSError, match="no answer"):
        await calls.ask(ADDRESS, request(1), 3)
    await calls.ask(ADDRESS, request(2), 3)
    await trio.sleep(5.0)
    assert [(connection, asked.producer_id) for connection, asked in peer.asked] == [(2, 2), (1, 1)]
    calls.close()


async def test_leaders_are_asked_for_once_until_they_are_forgotten(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    rows = [MetadataResponsePartition(partition_index=n, leader_id=n) for n in (1, 2)]
    brokers = [MetadataResponseBroker(1, "one", 91)]
    told = MetadataResponse(brokers=brokers, topics=[MetadataResponseTopic(name="t", partitions=rows)])
    peer = Peer(nursery, lambda *_: told, silent=False)
    calls = peer.calls()
    assert await calls.leader(1) == await calls.leader(1) == ("one", 91)
    assert len(peer.asked) == 1
    calls.forget(1)
    await calls.leader(1)
    assert len(peer.asked) == 2
    assert isinstance(peer.asked[0][1], MetadataRequest)
    with pytest.raises(OSError, match="no leader"):
        await calls.leader(2)
    calls.close()


async def test_nobody_to_connect_to_is_no_answer(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    peer = Peer(nursery, echo, silent=False)
    calls = peer.calls()
    with pytest.raises(OSError, match="no answer"):
        await calls.ask(("nowhere", 1), request(1), 3)


async def test_a_client_that_goes_elsewhere_waits_for_no_response(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    peer = Peer(nursery, echo, silent=True)
    one, other = (peer.listen(f"kproxy-{number}") for number in range(2))
    route = Route(0)
    calls = peer.calls(timeout=9.0, bootstrap=one, route=route)
    route.schedule([Turn(2.0, 1), Turn(6.0, 0, waits=True)])
    began = trio.current_time()
    with pytest.raises(OSError, match="no answer"):
        await calls.ask(one, request(9), 3)
    assert trio.current_time() == pytest.approx(began + 2.0)
    await calls.ask(one, request(1), 3)
    await trio.sleep(4.5)
    await calls.ask(other, request(1), 3)
    assert peer.hosts == ["kproxy-0", "kproxy-1", "kproxy-0"]
    calls.close()
