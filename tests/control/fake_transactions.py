"""The transactions' service in memory: what it answers is what the control API's callers may rely on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.txn.described import Described, DescribedPart, Listed, Listing, Outcome, OwnerId, Stale
from kproxy.txn.txn_error import TxnError

MAX_TIMEOUT_MS = 900_000
NOW_MS = 1_700_000_000_000


@dataclass
class FakeTransactions:
    """Every call is kept in ``calls``; ``failures`` are raised first, one for each call."""

    ids: dict[str, Described] = field(default_factory=dict)
    batch_ids: set[str] = field(default_factory=set)
    calls: list[tuple[object, ...]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    #: Set: a commit waits here, as for a broker that does not answer.
    stuck: trio.Event | None = None
    #: How old what is listed and described is.
    stale: Stale | None = None
    _owners: dict[str, int] = field(default_factory=dict)
    _producer_ids: Iterator[int] = field(default_factory=lambda: count(1000))

    async def begin(self, *, client_id: str | None, transactional_id: str | None, timeout_ms: int) -> Described:
        await self._called("begin", client_id, transactional_id, timeout_ms)
        name = transactional_id or f"kproxy-{client_id}"
        if timeout_ms > MAX_TIMEOUT_MS:
            raise TxnError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"{timeout_ms} ms is more than {MAX_TIMEOUT_MS}")
        old = self.ids.get(name)
        if old is not None and old.state == "Ongoing":
            raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{name} has a transaction already")
        self.ids[name] = Described(
            transactional_id=name,
            state="Ongoing",
            client_id=client_id or (old.client_id if old else ""),
            producer_id=old.producer_id if old else next(self._producer_ids),
            producer_epoch=old.producer_epoch + 1 if old else 0,
            started_ms=NOW_MS,
            timeout_ms=timeout_ms,
            partitions=(),
            groups=(),
            parts=old.parts if old else (),
            instance_id="box-1",
            last=old.last if old else None,
        )
        return self.ids[name]

    async def initialize(self, transactional_id: str, *, client_id: str, timeout_ms: int) -> Described:
        await self._called("initialize", transactional_id, client_id, timeout_ms)
        self.ids.pop(transactional_id, None)
        self._owners[transactional_id] = self._owners.get(transactional_id, -1) + 1
        epoch = self._owners[transactional_id]
        self.ids[transactional_id] = Described(
            transactional_id, "Empty", client_id, 1000, epoch, None, timeout_ms, (), (), (), "box-1", None
        )
        return self.ids[transactional_id]

    async def commit(
        self,
        transactional_id: str,
        *,
        batch_id: str | None = None,
        members: Sequence[str] = (),
        owner: OwnerId | None = None,
        abort_others: bool = False,
    ) -> Described:
        await self._called("commit", transactional_id, batch_id, tuple(members), owner, abort_others)
        if self.stuck is not None:
            await self.stuck.wait()
        self._check(transactional_id, owner)
        if batch_id is not None and batch_id in self.batch_ids:
            return self._find(transactional_id)
        found = self._decide(transactional_id, members, committed=True)
        if batch_id is not None:
            self.batch_ids.add(batch_id)
        return found

    async def abort(
        self, transactional_id: str, *, owner: OwnerId, members: Sequence[str] = (), abort_others: bool = False
    ) -> Described:
        await self._called("abort", transactional_id, tuple(members), owner, abort_others)
        self._check(transactional_id, owner)
        return self._decide(transactional_id, members, committed=False)

    async def begin_member(
        self,
        transactional_id: str,
        member: str,
        *,
        client_id: str,
        owner: OwnerId | None = None,
        timeout_ms: int | None = None,
        prefer_broker: bool = False,
    ) -> Described:
        await self._called("begin_member", transactional_id, member, client_id, owner, timeout_ms, prefer_broker)
        self._check(transactional_id, owner)
        return self._with(transactional_id, DescribedPart(member, next(self._producer_ids), 0, prepared=False))

    async def prepare_member(self, transactional_id: str, member: str, *, records: int | None = None) -> Described:
        await self._called("prepare_member", transactional_id, member, records)
        part = self._member(transactional_id, member)
        return self._with(transactional_id, part._replace(prepared=True))

    async def abort_member(self, transactional_id: str, member: str) -> Described:
        await self._called("abort_member", transactional_id, member)
        return self._with(transactional_id, None, without=self._member(transactional_id, member))

    async def prepare(self, transactional_id: str, *, owner: OwnerId, batch_id: str | None = None) -> Described:
        await self._called("prepare", transactional_id, owner, batch_id)
        self._check(transactional_id, owner)
        found = self._find(transactional_id)
        if found.state != "Ongoing":
            raise TxnError(ErrorCode.INVALID_TXN_STATE, f"{transactional_id} is {found.state}")
        part = DescribedPart("", found.producer_id, found.producer_epoch, prepared=True)
        self.ids[transactional_id] = found._replace(state="Empty", started_ms=None, parts=(*found.parts, part))
        return self.ids[transactional_id]

    async def reject(self, producer_id: int) -> None:
        await self._called("reject", producer_id)

    async def list(self) -> Listing:
        await self._called("list")
        rows = (Listed(*(getattr(found, name) for name in Listed._fields)) for found in self.ids.values())
        return Listing(rows, self.stale)

    async def describe(self, transactional_id: str) -> Described:
        await self._called("describe", transactional_id)
        return self._find(transactional_id)._replace(stale=self.stale)

    def write(self, transactional_id: str, topic: str, partition: int) -> None:
        """What a producer of the transaction would do."""
        found = self.ids[transactional_id]
        self.ids[transactional_id] = found._replace(partitions=(*found.partitions, (topic, partition)))

    async def _called(self, *call: object) -> None:
        self.calls.append(call)
        await trio.lowlevel.checkpoint()
        if self.failures:
            raise self.failures.pop(0)

    def _check(self, name: str, owner: OwnerId | None) -> None:
        if owner not in (None, self._find(name).owner):
            raise TxnError(ErrorCode.PRODUCER_FENCED, "a newer producer has it")

    def _member(self, name: str, member: str) -> DescribedPart:
        found = next((part for part in self._find(name).parts if part.name == member), None)
        if found is None:
            raise TxnError(ErrorCode.INVALID_TXN_STATE, f"no member {member}")
        return found

    def _with(self, name: str, part: DescribedPart | None, without: DescribedPart | None = None) -> Described:
        found = self._find(name)
        gone = without.name if without is not None else part.name if part is not None else ""
        kept = [one for one in found.parts if one.name != gone]
        self.ids[name] = found._replace(parts=(*kept, *([part] if part is not None else [])))
        return self.ids[name]

    def _find(self, name: str) -> Described:
        if name not in self.ids:
            raise TxnError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"the log does not know {name}")
        return self.ids[name]

    def _decide(self, name: str, members: Sequence[str], *, committed: bool) -> Described:
        found = self._find(name)
        if found.state != "Ongoing" and not found.parts:
            raise TxnError(ErrorCode.INVALID_TXN_STATE, f"{name} is {found.state}")
        unknown = set(members) - {part.name for part in found.parts}
        if unknown:
            raise TxnError(ErrorCode.INVALID_REQUEST, f"no members {sorted(unknown)}")
        self.ids[name] = found._replace(
            state="CompleteCommit" if committed else "CompleteAbort",
            started_ms=None,
            partitions=(),
            parts=(),
            last=Outcome(committed, "client", NOW_MS + 1),
        )
        return self.ids[name]
