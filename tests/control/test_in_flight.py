import trio
import trio.testing
from starlette.types import Receive, Scope, Send

from kproxy.control.in_flight import InFlight


async def nothing() -> dict[str, str]:
    return {}


async def send(message: object) -> None:
    return None


async def test_requests_are_waited_for() -> None:
    in_flight, may_end = InFlight(), trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await may_end.wait()

    counted = in_flight.watch(app)
    with trio.fail_after(120):
        await in_flight.quiet()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(counted, {"type": "http"}, nothing, send)
            nursery.start_soon(counted, {"type": "lifespan"}, nothing, send)
            await trio.testing.wait_all_tasks_blocked()
            assert in_flight.count == 1
            nursery.start_soon(in_flight.quiet)
            await trio.testing.wait_all_tasks_blocked()
            may_end.set()
        assert in_flight.count == 0
