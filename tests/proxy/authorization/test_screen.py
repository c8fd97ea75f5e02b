"""Long requests and responses are screened by another thread, with the same results."""

import gc
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from kproxy.budget import Share, TooManyElements, unbounded
from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest
from kproxy.codec._generated.list_groups import ListGroupsRequest, ListGroupsResponse, ListGroupsResponseListedGroup
from kproxy.codec._generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec.header import encode_request, encode_response
from kproxy.codec.messages import ErrorCode, Message
from kproxy.proxy.authorization.acl_rules import Rules
from kproxy.proxy.authorization.screen import LongScreening, screen, takes_long
from kproxy.proxy.commands import Beside, Encode
from kproxy.proxy.context import Policy as Limits
from tests.proxy.authorization.screening import Screened, allow
from tests.proxy.playbook import Play

REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
COUNT = 6_000


def metadata(count: int, *names: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in (*names, *map(str, range(count)))])


def produce(topics: int, size: int = 0) -> ProduceRequest:
    rows = [ProduceRequestPartitionProduceData(0, bytes(size))]
    return ProduceRequest(
        topic_data=[ProduceRequestTopicProduceData(str(n), partition_data=rows) for n in range(topics)]
    )


def frame_of(request: Message, version: int) -> bytearray:
    return bytearray(encode_request(request, version, 7, "client"))


@pytest.mark.parametrize(
    ("request_", "version", "long"),
    [
        (metadata(100), 1, False),
        (metadata(COUNT), 1, True),
        (produce(1, size=100_000), 9, False),
        (produce(900), 9, False),
        (produce(3_000), 9, True),
    ],
)
def test_a_request_is_long_by_what_is_checked_of_it(request_: Message, version: int, long: bool) -> None:
    assert takes_long(frame_of(request_, version)) == long


def test_a_long_request_is_screened_as_a_short_one_and_its_refusals_are_reported_afterwards() -> None:
    request = metadata(COUNT, "open")
    at_once, apart = Screened("Describe t:open"), Screened("Describe t:open")
    expected, frame = at_once.screen(request, 1)
    long = LongScreening(apart.access, frame, Share(Limits()))
    long.whole()
    assert not apart.told
    found = long.take()
    assert (found.frame, found.answer, found.parts) == (expected.frame, expected.answer, expected.parts)
    assert apart.told == at_once.told
    assert len(apart.told) == COUNT
    assert apart.access.makes_topics == at_once.access.makes_topics


def test_what_was_made_of_a_long_request_is_free_at_once() -> None:
    """Once it stayed until a full collection, which took 0.2 s for some of them. Other tests may have left some."""

    def topics() -> int:
        return sum(isinstance(one, MetadataResponseTopic) for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = topics()
        long = LongScreening(Screened("Describe t:open").access, frame_of(metadata(COUNT), 1), Share(Limits()))
        long.whole()
        long.take()
        del long
        assert topics() == before
    finally:
        gc.enable()


def play_of(screened: Screened) -> Play:
    play = Play(client_id="client")
    play.ctx.know(principal="User:a", client_id="client")
    play.ctx.access = screened.access
    return play


def screened_beside(waiting: Any) -> None:
    """A request is screened in another thread, and continues."""
    assert isinstance(waiting.command, Beside)
    waiting.command.work.whole()
    waiting.resume(1.0)


def test_a_session_has_long_requests_screened_and_their_refusals_encoded_by_another_thread() -> None:
    play = play_of(Screened("Describe t:open"))
    frame = play.frame(FindCoordinatorRequest(coordinator_keys=[f"group-{number}" for number in range(COUNT)]), 4)
    waiting = play.session.request(frame, 1.0)
    screened_beside(waiting)
    assert waiting.command is None
    assert not play.session.to_upstream
    (encode,) = play.commands()
    assert isinstance(encode, Encode)
    play.session.encoded(encode.slot, encode.encode(), 2.0)
    refused = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert [row.error_code for row in play.answer().coordinators] == [refused] * COUNT
    assert not play.session.held_bytes


def test_refusals_are_added_to_a_response_by_another_thread() -> None:
    play = play_of(Screened("Describe t:open"))
    frame = play.frame(metadata(COUNT, "open"), 1)
    waiting = play.session.request(frame, 1.0)
    screened_beside(waiting)
    assert waiting.command is None
    version, correlation_id, asked = play.sent()
    assert [topic.name for topic in asked.topics] == ["open"]
    response = MetadataResponse(topics=[MetadataResponseTopic(name="open")])
    play.session.response(bytearray(encode_response(response, version, correlation_id)), 2.0)
    (encode,) = play.commands()
    play.session.encoded(encode.slot, encode.encode(), 2.0)
    answer = play.answer()
    assert [row.error_code for row in answer.topics] == [0, *[REFUSED] * COUNT]
    assert not play.session.held_bytes


def test_rules_that_change_meanwhile_hold() -> None:
    screened = Screened("Describe t:")
    play = play_of(screened)
    frame = play.frame(metadata(COUNT), 1)
    waiting = play.session.request(frame, 1.0)
    assert isinstance(waiting.command, Beside)
    waiting.command.work.whole()
    screened.policy.use(Rules(allow("Describe t:open")))
    waiting.resume(1.0)
    screened_beside(waiting)
    assert waiting.command is None
    assert play.sent()[2].topics == []


def test_a_response_that_is_changed_may_have_as_many_elements_as_any_response() -> None:
    """Once it had at most 131,072, whatever ``buffer.memory`` was."""
    groups = ListGroupsResponse(groups=[ListGroupsResponseListedGroup(group_id=f"g{number}") for number in range(3)])
    answer, frame = encode_response(groups, 1, 1), frame_of(ListGroupsRequest(), 1)
    expected: list[tuple[int, AbstractContextManager[object]]] = [
        (2, pytest.raises(TooManyElements)),
        (3, nullcontext()),
    ]
    for most, ends in expected:
        found = screen(Screened("Describe g:g1").access, frame, Share(Limits(max_response_elements=most)), unbounded())
        assert found.finish is not None
        with ends:
            assert found.finish(answer) != answer
