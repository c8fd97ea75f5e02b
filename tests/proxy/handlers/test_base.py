"""What all handlers share."""

import pytest

from kproxy.budget import unbounded
from kproxy.codec._generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproxy.proxy.handlers import HANDLERS, handler_of
from kproxy.proxy.handlers.base import Exchange, Handler
from tests.proxy.playbook import context


def test_a_key_without_a_handler_is_relayed_or_recoded() -> None:
    handler = handler_of(HeartbeatRequest.API_KEY)
    request, response = HeartbeatRequest(), HeartbeatResponse()
    exchange = Exchange(request, 0, 1)
    assert type(handler) is Handler
    assert handler.rewrites(context(), 0, 1)
    assert not handler.rewrites(context(), 1, 1)
    assert handler.ask_version(context(), 0, 1) == 1
    assert handler.lift(context(), exchange, unbounded()) is request
    assert handler.lower(context(), exchange, response, unbounded()) is response
    assert list(handler.brokers_in(response)) == []


@pytest.mark.parametrize("api_key", HANDLERS)
def test_a_key_of_the_table_has_one_handler_of_its_own(api_key: int) -> None:
    handler = handler_of(api_key)
    assert handler is handler_of(api_key)
    assert type(handler) is not Handler


def test_conversions_add_up_by_direction_and_magic() -> None:
    ctx = context()
    ctx.fetched.count_converted("up", 0, 1, 5)
    ctx.fetched.count_converted("up", 0, 2, 7)
    ctx.fetched.count_converted("down", 1, 1, 1)
    assert ctx.fetched.converted == {("up", 0): (3, 12), ("down", 1): (1, 1)}
