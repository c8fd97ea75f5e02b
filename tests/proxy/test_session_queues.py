from kproxy.codec._generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproxy.codec.header import encode_response
from kproxy.codec.messages import ApiKey
from kproxy.proxy.api_stats import ApiStats
from kproxy.proxy.commands import Mute
from kproxy.proxy.handlers import DEFAULT
from kproxy.proxy.handlers.base import Exchange
from kproxy.proxy.session_queues import Link
from kproxy.proxy.slots import Slot
from kproxy.proxy.stats import Stats
from tests.proxy.playbook import context


def slot(link: Link, number: int) -> Slot:
    made = Slot(ApiKey.HEARTBEAT, 0, number, since=1.0, size=10)
    link.order.open(made)
    return made


def test_answers_leave_in_the_order_of_the_requests_and_are_counted() -> None:
    stats = Stats()
    ctx = context()
    link = Link(stats.apis, ctx)
    first, second = slot(link, 1), slot(link, 2)
    ctx.now = 1.5
    link.answer(second, HeartbeatResponse(), 0)
    assert not link.to_client
    link.answer_raw(first, b"whole frame")
    assert link.to_client == [b"whole frame", encode_response(HeartbeatResponse(), 0, 2)]
    stat = stats.apis.requests[ApiKey.HEARTBEAT, 0]
    assert (stat.count, stat.seconds_sum) == (2, 1.0)


def test_a_request_that_can_not_be_answered_ends_the_connection_when_its_turn_comes() -> None:
    link = Link(ApiStats(), context())
    first, second, third = (slot(link, number) for number in (1, 2, 3))
    link.fail(second)
    assert not link.finished
    link.answer_raw(third, b"never seen")
    link.answer_raw(first, b"seen")
    assert link.to_client == [b"seen"]
    assert link.finished


def test_a_client_is_muted_from_now_on_if_at_all() -> None:
    ctx = context()
    ctx.now = 10.0
    link = Link(ApiStats(), ctx)
    link.mute(0)
    link.mute(1.5)
    assert link.commands == [Mute(11.5)]


def test_a_silent_request_has_its_turn_but_no_answer() -> None:
    link = Link(ApiStats(), context())
    first, second = slot(link, 1), slot(link, 2)
    first.silent = True
    link.answer_raw(second, b"second")
    link.answer_raw(first)
    assert link.to_client == [b"second"]


def test_what_goes_to_the_broker_is_expected_back_in_order() -> None:
    link = Link(ApiStats(), context())
    first, second = slot(link, 1), slot(link, 2)
    link.relay(first, b"as it is")
    link.ask(second, DEFAULT, Exchange(None, 0, 3), HeartbeatRequest(group_id="g"), "me")
    assert [owed.correlation_id for owed in link.expected] == [1, 2]
    assert link.expected[0].handler is None
    assert link.expected[1].handler is DEFAULT
    assert link.to_upstream[0] == b"as it is"
    assert bytes(link.to_upstream[1])[4:8] == b"\x00\x0c\x00\x03"
