"""A coordinator that does what a test says, and notes what it was asked."""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import trio

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.config import Config
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.txn.coordinator import Coordinator
from kproxy.net.txn.id_admission import IdAdmission
from kproxy.net.txn.jobs import Jobs
from kproxy.net.txn.produce_answers import ProduceAnswers
from kproxy.net.txn.service import Transactions
from kproxy.proxy.stats import Stats
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import ALONE, DecisionScope
from kproxy.txn.procedures.owner_policy import CLIENT, OwnerPolicy
from kproxy.txn.requests import ClientBatch, IdHolder, TxnRequest, Written
from kproxy.txn.txn_error import TxnError


class FakeCoordinator(Coordinator):
    """Grants everything, at once; what it answers clients is a coordinator's own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.admission = IdAdmission(1_000, lambda _: True)
        #: What was asked, in the order in which it began: the name of the request and what it bore.
        self.asked: list[tuple[str, Any]] = []
        self.who: TxnRequest | None = None
        #: Raised by the next request of this name.
        self.errors: dict[str, ErrorCode] = {}
        self.refused: dict[tuple[str, int], ErrorCode] = {}
        #: A produce with this base sequence is accepted, or written, when the event is set.
        self.accepts: dict[int, trio.Event] = {}
        self.writes: dict[int, trio.Event] = {}
        self.done: list[int] = []
        self.brokers: Any = SimpleNamespace()
        self.log: Any = self

    @property
    def open(self) -> int:
        return 0

    def leave(self) -> None:
        pass

    def parties(self) -> Collection[int]:
        return ()

    def closed(self, connection: int) -> None:
        pass

    def _ask(self, name: str, what: Any, who: TxnRequest | None = None) -> None:
        self.asked.append((name, what))
        self.who = who
        if name in self.errors:
            raise TxnError(self.errors.pop(name), "as the test says")

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        client: Producer | None,
        client_id: str,
        policy: OwnerPolicy = CLIENT,
        holder: IdHolder | None = None,
    ) -> Producer:
        self._ask("init", (transactional_id, timeout_ms, client, client_id))
        return Producer(4000, 7)

    async def add_partitions(
        self, request: TxnRequest, places: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], ErrorCode]:
        self._ask("add", list(places), request)
        return self.refused

    async def add_offsets(self, request: TxnRequest, group_id: str) -> None:
        self._ask("add_offsets", group_id, request)

    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets, *, implicit: bool) -> None:
        self._ask("offsets_implicit" if implicit else "offsets", offsets, request)

    async def abort(self, transactional_id: str, client: Producer) -> None:
        self._ask("abort", (transactional_id, client))

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool, also: DecisionScope = ALONE) -> Producer:
        self._ask("end", (committed, bumps), request)
        return Producer(4000, request.client.epoch + bumps)

    def takes_at_once(self, *_: object) -> bool:
        return False

    async def produce(
        self,
        request: TxnRequest,
        batches: Sequence[ClientBatch],
        *,
        implicit: bool,
        accepted: Callable[[], None],
        is_job: bool = False,
    ) -> Sequence[Written]:
        sequence = batches[0].base_sequence
        self._ask("produce", (sequence, [(batch.topic, batch.partition) for batch in batches], implicit), request)
        if sequence in self.accepts:
            await self.accepts[sequence].wait()
        accepted()
        if sequence in self.writes:
            await self.writes[sequence].wait()
        self.done.append(sequence)
        return [Written(0, 100 + batch.base_sequence, -1) for batch in batches]


class FakeTransactions(Transactions):
    """What a server needs of it; no log is read."""

    def __init__(self, cluster: Cluster, config: Config, stats: Stats, nursery: trio.Nursery) -> None:
        super().__init__(cluster, config, stats, nursery)
        self.coordinator = FakeCoordinator(cluster)
        self.produce_answers = ProduceAnswers(self.coordinator, Jobs(nursery), cluster)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await trio.sleep_forever()
