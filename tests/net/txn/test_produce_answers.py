"""Produce requests whose batches go into transactions: taken at once, in their turn, or captured."""

from typing import Any

import pytest
import trio
import trio.testing

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.log_topic import TOPIC
from kproxy.proxy.coordinator_requests import (
    ImplicitProduce,
    ProducePart,
    TransactionalProduce,
)
from tests.net.txn.scripted_requests import GONE, REFUSED, WHO, Scripted, part, rows_of, scripted


class TestAtOnce:
    @pytest.mark.parametrize("version", [11, 12])
    async def test_batches_that_are_taken_at_once_are_answered_when_they_are_written(self, version: int) -> None:
        async with scripted() as at:
            answers: list[Any] = []
            ask = TransactionalProduce(WHO, [part(0), part(1)])
            assert at.requests.take_at_once(ask, version, answers.append)
            assert at.asked == [("at once", [("t", 0, 9), ("t", 1, 9)], version == 12)]
            assert [rows_of(answer) for answer in answers] == [[(0, 0, 5), (1, 0, 5)]]

    @pytest.mark.parametrize(
        "second", [part(1, error=3), part(1, records=0), part(1, topic=TOPIC.encode())], ids=["refused", "empty", "own"]
    )
    async def test_what_needs_more_than_a_place_in_the_order_is_not(self, second: ProducePart) -> None:
        async with scripted() as at:
            for ask in (
                TransactionalProduce(WHO, [part(0), second]),
                ImplicitProduce(at, 3, [part(0), second], 77),
            ):
                assert not at.requests.take_at_once(ask, 9, at.asked.append)
            assert at.asked == []

    async def test_nor_is_what_nobody_knows_or_takes(self) -> None:
        async with scripted() as at:
            asks = (TransactionalProduce(WHO, [part(0)]), ImplicitProduce(at, 3, [part(0)], 77))
            for ask in asks:
                assert not at.requests.take_at_once(ask, 13, at.asked.append)
            at.takes = False
            for ask in asks:
                assert not at.requests.take_at_once(ask, 9, at.asked.append)
            assert at.asked == []
            at.takes, at.error = True, REFUSED
            assert not at.requests.take_at_once(asks[0], 9, at.asked.append)

    async def test_what_is_captured_at_once_is_answered_and_counted(self) -> None:
        async with scripted() as at:
            ask, answers = ImplicitProduce(at, 3, [part(0), part(1)], 77), list[Any]()
            assert at.requests.take_at_once(ask, 9, answers.append)
            assert at.asked == [("came", 3, 2, 77), ("write at once",), ("done",)]
            at.asked, at.error = [], REFUSED
            assert at.requests.take_at_once(ask, 9, answers.append)
            assert at.asked == [("came", 3, 2, 77), ("write at once",), ("failed", str(REFUSED)), ("done",)]
            error = REFUSED.error_code
            assert [rows_of(one) for one in answers] == [[(0, 0, 5), (1, 0, 5)], [(0, error, -1), (1, error, -1)]]


class TestProduce:
    async def test_only_parts_without_an_error_are_written(self) -> None:
        async with scripted() as at:
            ask = TransactionalProduce(WHO, [part(0, error=3), part(1), part(2, topic=TOPIC.encode(), error=3)])
            answer = await at.requests.answer(ask, 9, lambda: None)
            assert rows_of(answer) == [(0, 3, -1), (1, 0, 5), (2, 3, -1)]
            at.error = REFUSED
            answer = await at.requests.answer(ask, 9, lambda: None)
            assert rows_of(answer) == [(0, 3, -1), (1, REFUSED.error_code, -1), (2, 3, -1)]

    async def test_a_connection_that_is_older_than_its_clients_gets_no_response(self) -> None:
        async with scripted() as at:
            at.error = GONE
            assert await at.requests.answer(TransactionalProduce(WHO, [part(0)]), 9, lambda: None) is None


class TestCaptured:
    async def write(self, at: Scripted, *parts: ProducePart, version: int = 9) -> list[tuple[int, int, int]]:
        before, accepted = trio.Event(), trio.Event()
        result = at.requests.capture(ImplicitProduce(at, 3, parts, 77), version, before, accepted)
        await trio.testing.wait_all_tasks_blocked()
        assert at.asked == []
        assert not accepted.is_set()
        before.set()
        answer = rows_of(await result())
        assert accepted.is_set()
        assert at.asked.pop() == ("done",)
        return answer

    async def test_it_is_written_after_what_came_before_it(self) -> None:
        async with scripted() as at:
            assert await self.write(at, part(0), part(1, records=0), part(2)) == [(0, 0, 5), (1, 0, -1), (2, 0, 5)]
            assert at.asked == [("came", 3, 2, 77), ("write", [("t", 0), ("t", 2)], False)]

    @pytest.mark.parametrize("others", [[], [part(1)]])
    async def test_a_refused_batch_refuses_the_request(self, others: list[ProducePart]) -> None:
        async with scripted() as at:
            rows = [(1, 0, 5)] if others else []
            assert await self.write(at, part(0, error=3), *others) == [(0, 3, -1), *rows]
            assert at.asked[1] == ("write", [("t", 1)] if others else [], True)

    async def test_what_holds_no_records_is_not_written(self) -> None:
        async with scripted() as at:
            assert await self.write(at, part(0, records=0)) == [(0, 0, -1)]
            assert at.asked == [("came", 3, 0, 77)]

    async def test_what_is_not_written_dooms_the_transaction(self) -> None:
        async with scripted() as at:
            at.error = REFUSED
            rows = await self.write(at, part(0), part(1, records=0), part(2, error=3), part(3))
            error = REFUSED.error_code
            assert rows == [(0, error, -1), (1, 0, -1), (2, 3, -1), (3, error, -1)]
            assert at.asked[-1] == ("failed", str(REFUSED))

    async def test_so_does_a_topic_that_no_broker_names(self) -> None:
        async with scripted() as at:
            at.lost = OSError("closed")
            rows = await self.write(at, part(0, topic=b"i" * 16), version=13)
            assert rows == [(0, ErrorCode.NOT_ENOUGH_REPLICAS, -1)], "the word of Produce for it"
            assert at.asked[-1][0] == "failed"
