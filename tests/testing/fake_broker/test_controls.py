"""Faults: which one strikes, how often, and what each does to a call."""

import pytest
import trio
import trio.testing

from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec.messages import ApiKey, Message
from kproxy.testing.fake_broker.controls import (
    Answer,
    Close,
    CloseAfter,
    Controls,
    Delay,
    Drop,
    Edit,
    Fault,
    handle_with,
)
from kproxy.testing.fake_broker.fake_api import Api, Call, CloseConnection
from tests.testing.fake_broker.calls import call_to, two_brokers

KEY = ApiKey.METADATA
CALL = call_to(two_brokers(), 1, MetadataRequest())


class Handler:
    """An API that notes when it was applied and answers with controller 1."""

    def __init__(self) -> None:
        self.applied: list[float] = []
        self.api = Api(KEY, (0, 13), self._handle)

    async def _handle(self, call: Call) -> Message | None:
        self.applied.append(trio.current_time())
        return MetadataResponse(controller_id=1)


async def test_without_a_fault_the_handler_answers() -> None:
    assert await handle_with(None, Handler().api, CALL) == MetadataResponse(controller_id=1)


async def test_an_answer_goes_instead_of_the_handlers() -> None:
    handler = Handler()
    assert await handle_with(Answer(MetadataResponse(controller_id=9)), handler.api, CALL) == MetadataResponse(
        controller_id=9
    )
    assert handler.applied == []


@pytest.mark.parametrize(("fault", "applied"), [(Close(), 0), (CloseAfter(), 1)])
async def test_a_connection_is_closed_before_or_after(fault: Fault, applied: int) -> None:
    handler = Handler()
    with pytest.raises(CloseConnection):
        await handle_with(fault, handler.api, CALL)
    assert len(handler.applied) == applied


@pytest.mark.parametrize("apply", [True, False])
async def test_a_dropped_request_gets_no_answer(apply: bool) -> None:
    handler = Handler()
    assert await handle_with(Drop(apply), handler.api, CALL) is None
    assert len(handler.applied) == apply


async def test_delays_pass_before_and_after(autojump_clock: trio.testing.MockClock) -> None:
    handler = Handler()
    begin = trio.current_time()
    assert await handle_with(Delay(before=100, after=200), handler.api, CALL) is not None
    assert handler.applied == [pytest.approx(begin + 100)]
    assert trio.current_time() == pytest.approx(begin + 300)


async def test_an_edit_alters_the_handlers_answer() -> None:
    def change(message: Message) -> None:
        assert isinstance(message, MetadataResponse)
        message.controller_id += 1

    assert await handle_with(Edit(change), Handler().api, CALL) == MetadataResponse(controller_id=2)


async def test_a_control_strikes_as_often_as_asked() -> None:
    controls = Controls()
    control = controls.add(KEY, lambda call: Close(), times=2)
    assert [await controls.fault_for(KEY, CALL) for _ in range(3)] == [Close(), Close(), None]
    assert control.hits == 2


async def test_a_call_let_pass_is_no_hit() -> None:
    controls = Controls()
    faults: list[Fault | None] = [None, Close()]
    control = controls.add(KEY, lambda call: faults.pop(0), times=1)
    assert [await controls.fault_for(KEY, CALL) for _ in range(3)] == [None, Close(), None]
    assert control.hits == 1


async def test_the_oldest_fault_wins_and_other_keys_are_not_asked() -> None:
    controls = Controls()
    first = controls.add(KEY, lambda call: Close(), times=None)
    second = controls.add(KEY, lambda call: CloseAfter(), times=None)
    assert await controls.fault_for(ApiKey.FETCH, CALL) is None
    assert await controls.fault_for(KEY, CALL) == Close()
    controls.remove(first)
    controls.remove(first)
    assert await controls.fault_for(KEY, CALL) == CloseAfter()
    assert (first.hits, second.hits) == (1, 1)


async def test_an_async_control_holds_the_call() -> None:
    release = trio.Event()
    faults: list[Fault | None] = []

    async def hold(call: Call) -> Fault | None:
        await release.wait()
        return Close()

    async def ask() -> None:
        faults.append(await controls.fault_for(KEY, CALL))

    controls = Controls()
    controls.add(KEY, hold, times=None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert faults == []
        release.set()
    assert faults == [Close()]
