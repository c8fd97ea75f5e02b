"""A coordinator, a cluster and a capture, in one: what they were asked, and what they answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from kproxy.codec._generated.leave_group import LeaveGroupResponse
from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.application_commits import ApplicationCommits
from kproxy.net.txn.jobs import Jobs
from kproxy.net.txn.produce_answers import ProduceAnswers
from kproxy.proxy.coordinator_requests import (
    ProducePart,
)
from kproxy.txn.ids import Producer
from kproxy.txn.requests import TxnRequest, Written
from kproxy.txn.txn_error import TxnError


class Scripted:
    """All three."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.asked: list[Any] = []
        self.takes = True
        self.error: Exception | None = None
        self.lost: Exception | None = None
        self.metadata = self.coordinators = self
        fake: Any = self
        jobs = Jobs(nursery)
        self.requests = ProduceAnswers(fake, jobs, fake)
        self.commits = ApplicationCommits(jobs, fake)

    def note(self, *what: Any) -> None:
        self.asked.append(what)
        if self.error is not None:
            raise self.error

    # -- of the cluster

    def known_names(self, refs: Any) -> Any:
        return None

    async def names(self, refs: Any) -> Any:
        self.asked.append(list(refs))
        if self.lost is not None:
            raise self.lost
        return {b"i" * 16: "t"}

    async def ask(self, group_id: str, request: Any, _: Any, versions: Any) -> LeaveGroupResponse:
        self.asked.append((group_id, request.member_id, versions))
        if self.lost is not None:
            raise self.lost
        return LeaveGroupResponse()

    # -- of the coordinator and the capture

    def takes_at_once(self, *_: Any) -> bool:
        return self.takes

    def produce_at_once(self, who: Any, batches: Any, written: Any, *, implicit: bool) -> None:
        self.note("at once", [(one.topic, one.partition, one.base_sequence) for one in batches], implicit)
        written([Written(0, 5, -1)] * len(batches))

    async def produce(self, who: Any, batches: Any, *, implicit: bool, accepted: Any) -> Any:
        self.note("produce", [(one.topic, one.partition) for one in batches], implicit)
        return [Written(0, 5, -1)] * len(batches)

    def took(self, connection: int, *, answered: bool) -> None:
        """Done before these requests are made."""

    def came(self, connection: int, batches: Any, arrival_ms: int) -> None:
        self.asked.append(("came", connection, len(batches), arrival_ms))

    def write_at_once(self, batches: Any, written: Any) -> None:
        self.note("write at once")
        written([Written(0, 5, -1)] * len(batches))

    async def write(self, batches: Any, *, refused: bool, accepted: Any) -> Any:
        self.note("write", [(one.topic, one.partition) for one in batches], refused)
        return [Written(0, 5, -1)] * len(batches)

    def failed(self, why: str) -> None:
        self.asked.append(("failed", why))

    def done(self) -> None:
        self.asked.append(("done",))

    async def commit(self, connection: int, offsets: Any) -> None:
        try:
            self.note("commit", connection, await offsets())
        except TxnError as error:
            self.asked.append(error.error_code)
            raise


ME = Producer(4000, 7)
REFUSED = TxnError(ErrorCode.INVALID_TXN_STATE, "doomed")
GONE = TxnError(ErrorCode.NETWORK_EXCEPTION, "older than its client's newest")
WHO = TxnRequest("id", ME, 3, "c")


def part(index: int, *, topic: bytes = b"t", records: int = 1, error: int = 0) -> ProducePart:
    return ProducePart(topic, index, memoryview(b"-"), records, 9, error)


def rows_of(answer: Any) -> list[tuple[int, int, int]]:
    return [(index, error, offset) for _, index, error, offset, _ in answer.rows]


@asynccontextmanager
async def scripted() -> AsyncIterator[Scripted]:
    async with trio.open_nursery() as nursery:
        yield Scripted(nursery)
