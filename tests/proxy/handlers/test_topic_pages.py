"""Pages of topics: the cursor names the next topic that the client may describe."""

from dataclasses import replace

import pytest

from kproxy.budget import unbounded
from kproxy.codec._generated.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponseTopic,
)
from kproxy.proxy.handlers.base import Again, AsItIs, Exchange
from kproxy.proxy.handlers.topic_pages import DescribeTopicPartitions
from tests.proxy.authorization.screening import Screened
from tests.proxy.playbook import context

Page = DescribeTopicPartitionsResponse
HANDLER = DescribeTopicPartitions()


def page(*names: str, following: str | None) -> DescribeTopicPartitionsResponse:
    topics = [DescribeTopicPartitionsResponseTopic(name=name) for name in names]
    cursor = None if following is None else DescribeTopicPartitionsResponseCursor(following, 3)
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)


def read(*pages: DescribeTopicPartitionsResponse) -> tuple[Page | AsItIs, list[tuple[str, int]]]:
    """What the client is answered, and the cursors that kproxy asked further pages for."""
    ctx = replace(context(), access=Screened("Describe t:a").access)
    exchange = Exchange(DescribeTopicPartitionsRequest(response_partition_limit=1), 0, 0)
    asked = []
    for each in pages:
        found = HANDLER.lower(ctx, exchange, each, unbounded())
        if not isinstance(found, Again):
            assert each is pages[-1]
            assert isinstance(found, Page | AsItIs)
            return found, asked
        request = found.request
        assert isinstance(request, DescribeTopicPartitionsRequest)
        assert request.cursor is not None
        assert request.response_partition_limit == 2000
        asked.append((request.cursor.topic_name, request.cursor.partition_index))
    raise AssertionError("no answer")


def cursor_of(answer: Page | AsItIs) -> tuple[str, int] | None:
    assert isinstance(answer, Page)
    return None if answer.next_cursor is None else (answer.next_cursor.topic_name, answer.next_cursor.partition_index)


def test_without_rules_pages_pass() -> None:
    exchange = Exchange(DescribeTopicPartitionsRequest(), 0, 0)
    assert not HANDLER.rewrites(context(), 0, 0)
    assert isinstance(HANDLER.lower(context(), exchange, page("x", following="y"), unbounded()), AsItIs)


def test_the_last_page_passes() -> None:
    answer, asked = read(page("a1", "x", following=None))
    assert isinstance(answer, AsItIs)
    assert not asked


def test_a_cursor_on_a_visible_topic_stays() -> None:
    answer, asked = read(page("a1", following="a2"))
    assert (cursor_of(answer), asked) == (("a2", 3), [])


@pytest.mark.parametrize("hidden", ["b", "zz"])
def test_a_hidden_cursor_is_replaced_by_the_next_visible_topic(hidden: str) -> None:
    answer, asked = read(page("a1", following=hidden), page(hidden, following="c"), page("c", "a9", following=None))
    assert (cursor_of(answer), asked) == (("a9", 0), [(hidden, 3), ("c", 3)])
    assert isinstance(answer, Page)
    assert [topic.name for topic in answer.topics] == ["a1"]


def test_where_no_visible_topic_follows_there_is_no_cursor() -> None:
    answer, asked = read(page("a1", following="b"), page("b", following=None))
    assert (cursor_of(answer), asked) == (None, [("b", 3)])


def test_a_further_page_may_end_before_a_visible_topic() -> None:
    answer, _ = read(page("a1", following="b"), page("b", following="a5"))
    assert cursor_of(answer) == ("a5", 3)
