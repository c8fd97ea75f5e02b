"""Which kproxies a client's connections go to."""

from math import inf

import trio
from trio.testing import MockClock

from verification.simulation.transactions.routes import Reach, Route, Turn


async def test_a_client_stays_where_it_began() -> None:
    route = Route(1)
    for _ in range(3):
        route.failed()
        assert route.next_host() == "kproxy-1"
    assert (route.turns_taken, route.interrupted_at, route.visited) == (0, inf, {1})


async def test_a_client_takes_its_turns_in_the_order_of_their_times(autojump_clock: MockClock) -> None:
    route = Route(0)
    began = trio.current_time()
    route.schedule([Turn(3.0, 2), Turn(1.0, 1, waits=True)])
    assert route.interrupted_at == began + 3.0
    assert route.next_host() == "kproxy-0"
    await trio.sleep(1.0)
    assert (route.turns_taken, route.next_host()) == (1, "kproxy-1")
    await trio.sleep(2.0)
    assert (route.turns_taken, route.next_host(), route.interrupted_at) == (2, "kproxy-2", inf)
    assert route.visited == {0, 1, 2}


async def test_a_client_whose_connection_failed_goes_to_any_of_others() -> None:
    route = Route(0, Reach((0, 1)), "seed")
    hosts = {route.next_host()}
    for _ in range(20):
        route.failed()
        assert route.next_host() == route.next_host()
        hosts.add(route.next_host())
    assert hosts == {"kproxy-0", "kproxy-1"}


async def test_a_balancer_spreads_connections() -> None:
    route = Route(0, Reach((1, 2), is_spread=True), "seed")
    assert {route.next_host() for _ in range(20)} == {"kproxy-1", "kproxy-2"}
