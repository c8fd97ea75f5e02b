"""The world of members whose data are in transactions of the broker's, and which kproxy's log decides."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kproxy.codec._generated.describe_transactions import DescribeTransactionsResponseTransactionState as Described
from kproxy.codec._generated.transaction_member import TransactionMember
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.ids import Producer
from kproxy.txn.verdict import Verdict
from verification.explorer import invariants
from verification.explorer.client import TIMEOUT_MS
from verification.explorer.coordinating import (
    COMMIT,
    CoordinatedId,
    CoordinatingWorld,
    ended_by_marker,
    put_marker,
)
from verification.explorer.engine import Move
from verification.explorer.world import Stored

if TYPE_CHECKING:
    from verification.explorer.member_driver import MembersDriver

#: A broker may abort a member after this time.
LONGEST_MS: Final = TIMEOUT_MS


class MemberWorld(CoordinatingWorld):
    """The log decides, and the broker has an id for each member."""

    #: Whether connections end in good order.
    is_balanced = False
    clients: "list[MembersDriver]"  # type: ignore[assignment]

    def __init__(self, budget: Mapping[str, int], level: int) -> None:
        """``level``: of ``transaction.version``."""
        super().__init__(budget, level)
        self.ids: dict[str, CoordinatedId] = {}
        #: Identities of which the broker has said in time that they are open: they are ended before their time-out.
        self.described: set[Producer] = set()
        self._is_overdue = False
        #: Members whose end is not the one that the log decided.
        self.misended: list[str] = []

    def facts(self) -> tuple[Any, ...]:
        """Return what tells this world from others, beside what all worlds have."""
        ids = tuple([(name, one.facts()) for name, one in sorted(self.ids.items())])
        torn = tuple([instance.tools.stats.torn for instance in self.instances])
        return ids, tuple(sorted(self.described)), torn, "harm" in self.budget.taken

    # -- the coordinator

    def ask(self, request: Any, *, is_late: bool) -> Any:
        """The response to a request."""
        name = getattr(request, "transactional_id", None) or request.v3_and_below_transactional_id
        if name not in self.ids:
            self.ids[name] = CoordinatedId(self.level, self.partitions, self._new_producer_id, self._mark)
        return self.ids[name].ask(request)

    def _new_producer_id(self) -> int:
        self.producer_ids += 1
        return self.producer_ids

    def describe(self, transactional_id: str) -> Described | None:
        """Return what the coordinator knows of an id: a transaction that is open has just begun."""
        one = self.ids[transactional_id]
        found = one.describe()
        if found is None:
            return None
        if one.is_open:
            self.described.add(Producer(found.producer_id, found.producer_epoch))
        now_ms = self.time.wall_ms()
        return found.replaced(transaction_start_time_ms=now_ms, transaction_timeout_ms=LONGEST_MS)

    def _mark(self, place: TopicPartition, producer: Producer, outcome: str) -> None:
        rows = self.partitions[place].rows
        ended = [row for row in rows if _is_data(row, producer) and ended_by_marker(rows, row) is Verdict.UNDECIDED]
        put_marker(self.partitions[place], producer, outcome)
        for row in ended if not self._is_overdue else ():
            self._judge(row, outcome)
        self._look()

    def _judge(self, row: Stored, outcome: str) -> None:
        """Note an end that nobody has decided."""
        member = self._member(_writer(row))
        verdict, is_prepared = self._decided(_writer(row)), False
        if member is not None and (view := self.reader.of_producer(member.producer_id)) is not None:
            is_prepared = member in view.prepared
        if outcome == COMMIT and verdict is not Verdict.COMMITTED:
            self.misended.append(f"{row.payload} is committed at its broker, and {verdict.name} in the log")
        if outcome != COMMIT and (verdict is Verdict.COMMITTED or is_prepared):
            why = "waits there for its decision" if is_prepared else "is committed"
            self.misended.append(f"{row.payload} is aborted at its broker, and by the log it {why}")

    def _decided(self, writer: Producer) -> Verdict:
        """Return the log's decision about the member that writes under an identity of the broker's."""
        member = self._member(writer)
        return Verdict.UNDECIDED if member is None else self.reader.verdict(*member)

    def _member(self, writer: Producer) -> Producer | None:
        """Return the member that writes under an identity of the broker's."""
        for entry, _ in self.log:
            body = entry.body
            if isinstance(body, TransactionMember) and body.native is not None:
                native = Producer(body.native.producer_id, body.native.epoch)
                if native == writer:
                    return Producer(body.member_producer_id, body.member_epoch)
        return None

    # -- partitions

    def write(self, place: TopicPartition, producer: Producer, sequence: int, payload: str) -> int | None:
        """The leader asks the coordinator before it takes a batch of its producers."""
        one = self._of(producer.producer_id)
        return (
            super().write(place, producer, sequence, payload)
            if one is None
            else one.write(place, producer, sequence, payload)
        )

    def _of(self, producer_id: int) -> CoordinatedId | None:
        known = (one for one in self.ids.values() if one.one is not None)
        return next((one for one in known if one.producer.producer_id == producer_id), None)

    def verdict(self, place: TopicPartition, row: Stored) -> Verdict:
        """Judge members' data by their markers, and other data by the log; so, too, where a marker is to come."""
        if self._of(row.producer_id) is None:
            return super().verdict(place, row)
        verdict = ended_by_marker(self.partitions[place].rows, row)
        return self._decided(_writer(row)) if verdict is Verdict.UNDECIDED else verdict

    # -- what may happen

    def moves(self) -> list[Move]:
        """Each thing that may happen next."""
        found = super().moves()
        for name, one in self.ids.items():
            if self.budget["overdue"] and one.is_open and one.producer not in self.described:
                text = f"the broker aborts {name}, which takes too long"
                found.append(Move(text, partial(self._time_out, one), is_fault=True))
        return found

    def _time_out(self, one: CoordinatedId) -> None:
        self.budget.take("overdue")
        self.harm()
        self._is_overdue = True
        one.abort()
        self._is_overdue = False

    # -- what must not happen

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Ends that nobody decided; batches that are seen twice, or that are committed and not seen."""
        for text in self.misended:
            yield invariants.ENDED, text
        for instance in self.instances:
            if instance.tools.stats.torn:
                yield invariants.ENDED, f"{instance.name} reports a transaction as torn"
        seen = {payload for payload, verdict in self.shown() if verdict is Verdict.COMMITTED}
        for client in self.clients:
            for batch, tries in enumerate(client.tries):
                whole = [told for told in tries if seen.issuperset(told.sent)]
                if len(whole) > 1:
                    yield invariants.TWICE, f"batch {batch} of {client.name} is seen {len(whole)} times"
                if batch < client.done and not whole:
                    yield invariants.LOST, f"{client.name} heard that its batch {batch} is committed"

    def left(self) -> Iterator[tuple[str, str]]:
        """Transactions that nobody ends though the log has decided them, or does not know them.

        Where a kproxy was killed its late requests may have opened one that it can't end any more, in the first
        protocol: verification/corners/transactions.md names this as a limit.
        """
        for place, partition in self.partitions.items():
            for row in partition.rows:
                is_open = not row.is_control and ended_by_marker(partition.rows, row) is Verdict.UNDECIDED
                if is_open and self._of(row.producer_id) is not None and self._is_decided_member(_writer(row)):
                    yield invariants.OPEN, f"{row.payload} at {place[1]} is not ended at its broker"
        for name, one in self.ids.items():
            is_limit = self.level == 1 and "crash" in self.budget.taken
            if one.is_open and not is_limit and self._member(one.producer) is None:
                yield invariants.OPEN, f"the transaction of {name}, which no member has, stays open at its broker"
            if one.is_open and not is_limit and self._is_decided_member(one.producer):
                yield invariants.OPEN, f"the transaction of {name} stays open at its broker"
        for view in self.reader.all():
            for member in view.ending.values():
                yield invariants.OPEN, f"nobody knows that {member.name} has ended"

    def _is_decided_member(self, writer: Producer) -> bool:
        return self._decided(writer) is not Verdict.UNDECIDED


def _writer(row: Stored) -> Producer:
    return Producer(row.producer_id, row.producer_epoch)


def _is_data(row: Stored, producer: Producer) -> bool:
    return row.producer_id == producer.producer_id and not row.is_control
