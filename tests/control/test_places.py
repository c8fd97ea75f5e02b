"""Who gets a place, and who gives way."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kproxy.control.places import Evicted, Limits, Place, Places


class Waiting:
    """Connections that wait for their clients until they end."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.ended: dict[Place, type[Exception]] = {}

    async def begin(self, place: Place | None, seconds: float = 1000) -> Place:
        assert place is not None
        place.begin()
        self._nursery.start_soon(self._wait, place, seconds)
        await trio.sleep(0.1)
        return place

    async def _wait(self, place: Place, seconds: float) -> None:
        try:
            with place.waits(seconds):
                await trio.sleep_forever()
        except (Evicted, trio.TooSlowError) as error:
            self.ended[place] = type(error)


async def test_where_all_places_are_taken_the_oldest_that_waits_gives_way(autojump_clock: MockClock) -> None:
    refused: list[str] = []
    places = Places(Limits(3, 3), refused.append)
    async with trio.open_nursery() as nursery:
        waiting = Waiting(nursery)
        busy = places.take("a")
        first, second = [await waiting.begin(places.take(host)) for host in ("a", "b")]
        first.begin()  # it has sent a request since, and waits again
        assert places.take("c") is not None
        await wait_all_tasks_blocked()
        # of the address that holds most
        assert waiting.ended == {first: Evicted}
        assert refused == ["evicted"]
        assert places.take("d") is not None
        await wait_all_tasks_blocked()
        assert waiting.ended == {first: Evicted, second: Evicted}
        # The others do something for their clients: none of them is ended.
        assert places.take("e") is None
        assert refused == ["evicted", "evicted", "max_connections"]
        assert busy is not None
        busy.leave()
        busy.leave()
        assert places.take("e") is not None
        assert places.take("f") is None


async def test_an_address_takes_no_place_of_others(autojump_clock: MockClock) -> None:
    refused: list[str] = []
    places = Places(Limits(100, 2), refused.append)
    async with trio.open_nursery() as nursery:
        waiting = Waiting(nursery)
        other = await waiting.begin(places.take("192.0.2.1"))
        older, newer = [await waiting.begin(places.take("2001:db8::1")) for _ in range(2)]
        third = places.take("2001:db8::2")  # a neighbour in one network
        await wait_all_tasks_blocked()
        assert waiting.ended == {older: Evicted}
        assert third is not None
        newer.evict()
        await wait_all_tasks_blocked()
        assert places.take("2001:db8::3") is not None
        assert places.take("2001:db8::3") is None
        assert refused == ["evicted", "max_connections_per_ip"]
        assert other not in waiting.ended
        nursery.cancel_scope.cancel()


async def test_clients_of_a_unix_socket_have_no_address() -> None:
    places = Places(Limits(3, 1), lambda reason: None)
    assert all(places.take("") for _ in range(3))
    assert places.take("") is None


async def test_a_wait_has_its_time(autojump_clock: MockClock) -> None:
    place = Places(Limits(1, 1), lambda reason: None).take("a")
    assert place is not None
    assert not place.waits_for_client
    with pytest.raises(trio.TooSlowError), place.waits(5):
        assert place.waits_for_client
        await trio.sleep(10)
    assert trio.current_time() == pytest.approx(5, abs=0.1)
    assert not place.waits_for_client


async def test_what_is_done_for_a_client_is_not_ended_in_the_middle() -> None:
    place = Places(Limits(1, 1), lambda reason: None).take("a")
    assert place is not None
    place.evict()
    await trio.lowlevel.checkpoint()
    with pytest.raises(Evicted), place.waits(5):
        pass
