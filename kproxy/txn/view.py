"""The view of one transactional id in the transaction log: a function of its records, the same for every reader.

The order of the log is the truth. Two readers that have read equally far agree. So the effect of a record depends on
the records before it in the log, never on its writer or on a broker's response.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_decision import TransactionDecision, TransactionDecisionPart
from kproxy.codec._generated.transaction_ended import TransactionEnded
from kproxy.codec._generated.transaction_expiry import TransactionExpiry
from kproxy.codec._generated.transaction_member import TransactionMember
from kproxy.codec._generated.transaction_mirrored import TransactionMirrored
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec._generated.transaction_partitions import TransactionPartitions
from kproxy.codec._generated.transaction_prepare import TransactionPrepare
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.counting_copies import Copies, counting_copies, is_bounded, is_other_copy
from kproxy.txn.epoch_set import EpochSet
from kproxy.txn.ids import LAST_EPOCH, Producer, is_transactional_producer_id
from kproxy.txn.unmirrored_offsets import UnmirroredOffsets, offsets_bytes, with_newest
from kproxy.txn.verdict import Verdict
from kproxy.txn.view_values import (
    ASKED,
    BATCH_IDS,
    LOST,
    LOST_MEMBERS,
    BrokerTransaction,
    DecidedEpoch,
    EndingMember,
    IdClaim,
    Joined,
    LogPosition,
    Ongoing,
    Prepared,
)

__all__ = ["IdView", "LogPosition"]

_NOBODY: Final = Producer(-1, -1)


@dataclass(slots=True, weakref_slot=True)
class IdView:
    """The view of one transactional id."""

    transactional_id: str
    claim: IdClaim | None = None
    #: The client's identity from now on: the claim's, until a decision names the next.
    client: Producer = Producer(-1, -1)  # noqa: RUF009  # a constant
    #: Producer ids by generation, the first first.
    generations: list[int] = field(default_factory=list)
    committed: dict[int, EpochSet] = field(default_factory=dict)
    #: Of the claim's epochs; what lies below the claim is aborted without a word.
    aborted: set[Producer] = field(default_factory=set)
    #: Of committed epochs: which copies of a batch count. Of former epochs, which other instances may still take for
    #: theirs: where the data end.
    copies: dict[Producer, Copies] = field(default_factory=dict)
    #: Those that are undecided.
    members: dict[Producer, Joined] = field(default_factory=dict)
    #: Epochs of members that are aborted: nothing can be said of them any more.
    aborted_members: dict[int, EpochSet] = field(default_factory=dict)
    prepared: dict[Producer, Prepared] = field(default_factory=dict)
    #: Decided members with transactions of the broker, until the log says that these transactions have ended.
    ending: dict[Producer, EndingMember] = field(default_factory=dict)
    #: Where undecided data may begin, by the epoch that writes them.
    bounds: dict[Producer, dict[TopicPartition, int]] = field(default_factory=dict)
    #: The client's sequence of the first record that the epoch writes there, as far as the log says it.
    first_sequences: dict[Producer, dict[TopicPartition, int]] = field(default_factory=dict)
    pending: dict[Producer, list[TransactionOffsets]] = field(default_factory=dict)
    #: Offsets of committed transactions that the broker's own group offsets may not have yet, the oldest first.
    unmirrored: UnmirroredOffsets = field(default_factory=UnmirroredOffsets)
    ongoing: Ongoing | None = None
    last: DecidedEpoch | None = None
    batch_ids: deque[str] = field(default_factory=lambda: deque(maxlen=BATCH_IDS))
    #: Of own parts that were prepared under a batch id, and aborted since.
    aborted_batch_ids: deque[str] = field(default_factory=lambda: deque(maxlen=BATCH_IDS))
    expired: bool = False
    touched: LogPosition = LogPosition(-1, -1)  # noqa: RUF009  # a constant

    # -- what is asked

    @property
    def offsets_bytes(self) -> int:
        """An estimate of the memory, in bytes, of group offsets that are undecided or that the broker may lack."""
        return self.unmirrored.size + sum(offsets_bytes(row) for rows in self.pending.values() for row in rows)

    def verdict(self, producer: Producer) -> Verdict:
        """Whether what was written under an epoch of this id's is to be seen."""
        if _holds(self.committed, producer):
            return Verdict.COMMITTED
        if producer in self.aborted or _holds(self.aborted_members, producer):
            return Verdict.ABORTED
        if producer in self.prepared:
            return Verdict.UNDECIDED
        joined = self.members.get(producer)
        if joined is not None:
            # a claim spares what is prepared, not what joined it
            is_open = self.verdict(joined.owner) is Verdict.UNDECIDED and not self._is_below_claim(joined.owner)
            return Verdict.UNDECIDED if is_open else Verdict.ABORTED
        return Verdict.ABORTED if self._is_below_claim(producer) else Verdict.UNDECIDED

    def _is_below_claim(self, producer: Producer) -> bool:
        if self.claim is None or producer.producer_id not in self.generations:
            return False
        generation = self.generations.index(producer.producer_id) + 1
        return (generation, producer.epoch) < (self.claim.generation, self.claim.first_epoch)

    def producer_ids(self) -> set[int]:
        """All under which data of this id may stand: the claims' and the members'."""
        joined = {member.producer_id for member in self.members}
        return {*self.generations, *self.committed, *self.aborted_members, *joined}

    def next_epoch(self) -> Producer | None:
        """The epoch of the open transaction or, if there is none, of the next one: the same for every reader of the
        log.

        None if a block has to be claimed first.
        """
        if self.claim is None or self.expired:
            return None
        if self.ongoing is not None:
            return self.ongoing.producer
        epochs = range(self.claim.first_epoch, self.claim.end_epoch)
        block = (Producer(self.claim.producer_id, epoch) for epoch in epochs)
        return next((part for part in block if self._is_open(part)), None)

    def open_since(self) -> Ongoing | None:
        """The part that is open and not prepared: the transaction, or a member of one that was prepared itself."""
        if self.ongoing is not None:
            return self.ongoing
        joined = (one for part, one in self.members.items() if part not in self.prepared)
        first = min(joined, key=lambda one: one.at, default=None)
        return Ongoing(first.owner, first.at) if first is not None else None

    @property
    def is_settled(self) -> bool:
        """Whether nobody has anything to do for it: nothing is open, prepared, or still to be told to a broker."""
        return self.ongoing is None and not (self.members or self.prepared or self.ending or self.unmirrored)

    def has_own_data(self) -> bool:
        """Whether the open transaction holds more than what its members wrote, as far as the log knows."""
        part = self.ongoing.producer if self.ongoing is not None else None
        return part in self.bounds or part in self.pending or (part is not None and bool(self.continued(part)))

    def continued(self, producer: Producer) -> list[Producer]:
        """The former epochs of a transaction that other instances began, the first first: its decision names them."""
        return [part for part, joined in self.members.items() if joined.owner == producer and self.is_former(part)]

    def epochs_with_data(self, producer: Producer) -> list[Producer]:
        """The epochs of a transaction that may have written data, the first first."""
        return [part for part in (*self.continued(producer), producer) if part in self.bounds]

    def awaits_client(self) -> bool:
        """Whether the open transaction can be continued by the instance that its client comes to.

        The log has to say at which sequences of the client's it began in each partition: else retries can't be
        recognised. Clients that know nothing of transactions have none.
        """
        found = self.continuable()
        parts = self.epochs_with_data(found.producer) if found is not None else []
        return bool(parts) and all(
            self.bounds[part].keys() == self.first_sequences.get(part, {}).keys() for part in parts
        )

    def is_former(self, part: Producer) -> bool:
        """Whether another claim's epoch continues, or has committed, the transaction that this one began."""
        is_continued = part in self.members and part.producer_id in self.generations
        return is_continued or (part in self.copies and is_bounded(self.copies[part]))

    def continuable(self) -> Ongoing | None:
        """The open transaction if a claim may continue it: members, which are elsewhere, can only be aborted."""
        part = self.ongoing.producer if self.ongoing is not None else None
        has_members = any(one.owner == part and not self.is_former(member) for member, one in self.members.items())
        return None if has_members else self.ongoing

    def has_committed(self, batch_id: str | None) -> bool:
        """Whether a commit that counts had this batch id: another one with it changes nothing. None: never."""
        return batch_id is not None and batch_id in self.batch_ids

    def has_aborted(self, batch_id: str | None) -> bool:
        """Whether the part that was prepared under this batch id was aborted. None: never."""
        return batch_id is not None and batch_id in self.aborted_batch_ids

    def is_ours(self, nonce: bytes) -> bool:
        """Whether the claim with this nonce is the one that holds."""
        return self.claim is not None and self.claim.nonce == nonce

    @property
    def is_doomed(self) -> bool:
        """Whether the client's transaction was aborted, and not by the client, which may not know it yet."""
        last = self.last
        return last is not None and not last.committed and last.reason != ASKED and last.client == self.client

    def bound(self, place: TopicPartition) -> int | None:
        """The lowest offset of a partition at which undecided data of this id may lie; None if there are none."""
        return min((places[place] for places in self.bounds.values() if place in places), default=None)

    def undecided_groups(self) -> Iterator[tuple[Producer, TransactionOffsets]]:
        """The group offsets that wait for a decision."""
        return ((producer, record) for producer, records in self.pending.items() for record in records)

    # -- what is read

    def apply(self, body: Any, at: LogPosition) -> bool:
        """Takes the next record of this id; False if it changes nothing, for it came too late or from nobody."""
        took = _RULES[type(body)](self, body, at)
        if took:
            self.touched = at
        return took

    def _claim(self, body: TransactionClaim, at: LogPosition) -> bool:
        """Claims are ordered by (generation, epoch); of two to one place the first in the log wins."""
        sound = body.epochs > 0 and body.first_epoch >= 0 and body.first_epoch + body.epochs - 1 <= LAST_EPOCH
        if not sound or not self._is_next(body):
            return False
        if body.producer_id not in self.generations:
            self.generations.append(body.producer_id)
        self.claim = self._claim_of(body, at)
        open_part = self.continuable()
        if open_part is not None and open_part.producer == _continued_by(body):
            self._continue(open_part, Producer(body.producer_id, body.first_epoch), body.nonce)
        elif self.ongoing is not None:
            # the next coordinator must not treat an earlier decision as this transaction's
            was, why = self.ongoing.producer, self._why_lost()
            self.last = DecidedEpoch(was, self.client, self.claim.client, False, why, by_claim=True, at=at)
            self.ongoing = None
        self.client, self.expired = self.claim.client, False
        self._forget_aborted()
        return True

    def _continue(self, former: Ongoing, owner: Producer, nonce: bytes) -> None:
        """The claim's first epoch continues what is open: data under former epochs are its members' from now on."""
        for part in self.epochs_with_data(former.producer):
            self.members[part] = Joined(owner, "", nonce, former.since)
        if records := self.pending.pop(former.producer, None):
            named = {"producer_id": owner.producer_id, "epoch": owner.epoch}
            self.pending[owner] = [record.replaced(**named) for record in records]
        self.ongoing = Ongoing(owner, former.since)

    def _why_lost(self) -> str:
        """The reason of a claim that aborts what is open; an earlier loss that the client may not know of still counts.

        Otherwise what was prepared beside the lost data could be committed without them.
        """
        if self.has_own_data():
            return LOST
        return self.last.reason if self.last is not None and self.is_doomed else LOST_MEMBERS

    def _claim_of(self, body: TransactionClaim, at: LogPosition) -> IdClaim:
        """The claim, with the identity that the client has after it.

        A claim that names no new identity is made on behalf of the producer that has the id. So is one whose identity
        a decision gave to that producer after the claimant had read the log: two producers must not have the same one.
        """
        claim, former = IdClaim.of(body, at), self.claim
        if _comes_after(claim.client, self.client):
            return replace(claim, names_client=True)
        same = former is not None and former.client == self.client
        resumed = former.resumed if former is not None and same else _NOBODY
        return replace(claim, client=self.client, resumed=resumed)

    def _is_next(self, body: TransactionClaim) -> bool:
        old = self.claim
        if old is not None and body.producer_id == old.producer_id:
            return body.generation == old.generation and body.first_epoch >= old.end_epoch
        new = body.producer_id not in self.producer_ids() and is_transactional_producer_id(body.producer_id)
        return new and body.generation == len(self.generations) + 1

    def _forget_aborted(self) -> None:
        """Drops what only undecided parts need, after a claim or a decision."""
        self._forget_members()
        self.aborted = {
            part for part in self.aborted if part.producer_id in self.generations and not self._is_below_claim(part)
        }
        kept = {producer for producer in self.bounds if self.verdict(producer) is Verdict.UNDECIDED}
        self.bounds = {producer: places for producer, places in self.bounds.items() if producer in kept}
        self.first_sequences = {part: found for part, found in self.first_sequences.items() if part in kept}
        self.pending = {
            producer: records
            for producer, records in self.pending.items()
            if self.verdict(producer) is Verdict.UNDECIDED
        }

    def _forget_members(self) -> None:
        """Forgets members that are decided; only their verdict is kept."""
        for part in list(self.members):
            verdict = self.verdict(part)
            if verdict is Verdict.ABORTED:
                self.aborted_members.setdefault(part.producer_id, EpochSet()).add(part.epoch)
            if verdict is not Verdict.UNDECIDED:
                self._to_be_ended(part, committed=verdict is Verdict.COMMITTED)
                del self.members[part]

    def _to_be_ended(self, part: Producer, *, committed: bool, empty: bool = False) -> None:
        """Notes a decided member whose broker has to end its transaction; prepared ones may be ``empty``."""
        joined = self.members.get(part)
        if joined is not None and joined.broker_transaction is not None:
            self.ending.setdefault(part, EndingMember(joined.broker_transaction, joined.name, committed, empty))

    def _partitions(self, body: TransactionPartitions, at: LogPosition) -> bool:
        producer = Producer(body.producer_id, body.epoch)
        if not self._may_write(producer, body.nonce):
            return False
        for topic in body.topics:
            for row in topic.partitions:
                place = (topic.name, row.index)
                self.bounds.setdefault(producer, {}).setdefault(place, row.end_offset)
                if row.first_sequence >= 0:
                    self.first_sequences.setdefault(producer, {})[place] = row.first_sequence
        self._begin(producer, at)
        return True

    def _begin(self, producer: Producer, at: LogPosition) -> None:
        if producer not in self.members and (self.ongoing is None or self.ongoing.producer != producer):
            self.ongoing = Ongoing(producer, at)

    def _may_write(self, producer: Producer, nonce: bytes) -> bool:
        """Whether a part is open, and its record is from the present owner."""
        joined = self.members.get(producer)
        if joined is not None:
            owned = joined.nonce == nonce
        else:
            owned = self.is_ours(nonce) and not self.expired and self.claim is not None and self.claim.covers(producer)
        return owned and self._is_open(producer)

    def _is_open(self, producer: Producer) -> bool:
        return producer not in self.prepared and self.verdict(producer) is Verdict.UNDECIDED

    def _offsets(self, body: TransactionOffsets, at: LogPosition) -> bool:
        producer = Producer(body.producer_id, body.epoch)
        if not self._may_write(producer, body.nonce):
            return False
        self.pending[producer] = with_newest(self.pending.get(producer, ()), body)
        self._begin(producer, at)
        return True

    def _member(self, body: TransactionMember, at: LogPosition) -> bool:
        owner = Producer(body.producer_id, body.epoch)
        member = Producer(body.member_producer_id, body.member_epoch)
        known = member in self.members or member.producer_id in self.generations or not self._is_open(member)
        sound = is_transactional_producer_id(member.producer_id) and 0 <= member.epoch <= LAST_EPOCH
        if known or not sound or owner in self.members or not self._may_write(owner, body.nonce):
            return False
        self.members[member] = Joined(owner, body.name, body.member_nonce, at, _broker_transaction(body))
        self._begin(owner, at)
        return True

    def _prepare(self, body: TransactionPrepare, at: LogPosition) -> bool:
        producer = Producer(body.producer_id, body.epoch)
        if not self._may_write(producer, body.nonce):
            return False
        joined = self.members.get(producer)
        self.prepared[producer] = Prepared(body, joined.name if joined else "", at, self.client)
        if body.batch_id is not None and self.has_aborted(body.batch_id):
            self.aborted_batch_ids.remove(body.batch_id)
        if self.ongoing is not None and self.ongoing.producer == producer:
            self.ongoing = None
        return True

    def _decision(self, body: TransactionDecision, at: LogPosition) -> bool:
        """Counts if it is the owner's, of an epoch of its block, and every part that it names may be decided."""
        producer = Producer(body.producer_id, body.epoch)
        if producer in self.members or not self._may_write(producer, body.nonce):
            return False
        parts, former = [Producer(part.producer_id, part.epoch) for part in body.parts], self.continued(producer)
        if len(set(parts)) < len(parts) or not all(self._may_decide(part, producer) for part in parts):
            return False
        if body.committed and body.batch_id is not None:
            if self.has_committed(body.batch_id):
                return False
            self.batch_ids.append(body.batch_id)
        for part in {producer, *parts}:
            self._settle(part, body.committed)
        if body.committed:
            for row in body.parts:
                self._note_copies(row, is_former=Producer(row.producer_id, row.epoch) in former)
        self.last = DecidedEpoch(
            producer,
            self.client,
            Producer(body.next_client_producer_id, body.next_client_epoch),
            body.committed,
            body.reason,
            by_claim=False,
            at=at,
        )
        self.client = self.last.next_client
        if self.ongoing is not None and self.verdict(self.ongoing.producer) is not Verdict.UNDECIDED:
            self.ongoing = None
        self._forget_aborted()
        return True

    def _may_decide(self, part: Producer, main: Producer) -> bool:
        if part == main or part in self.prepared:
            return True
        joined = self.members.get(part)
        return joined is not None and joined.owner == main and self._is_open(part)

    def _settle(self, part: Producer, committed: bool) -> None:
        prepared = self.prepared.pop(part, None)
        self._to_be_ended(part, committed=committed, empty=prepared is not None and not prepared.record.topics)
        records = self.pending.pop(part, [])
        if not committed:
            self.aborted.add(part)  # a member's moves to where all of theirs are
            if prepared is not None and prepared.record.batch_id is not None:
                self.aborted_batch_ids.append(prepared.record.batch_id)
            return
        self.committed.setdefault(part.producer_id, EpochSet()).add(part.epoch)
        for record in records:
            self.unmirrored.add(part, record)

    def _note_copies(self, part: TransactionDecisionPart, *, is_former: bool) -> None:
        if named := counting_copies(part, is_former=is_former):
            self.copies[Producer(part.producer_id, part.epoch)] = named

    def is_other_copy(self, producer: Producer, place: TopicPartition, base_sequence: int, base_offset: int) -> bool:
        """Whether a batch of a committed epoch does not count."""
        return producer in self.copies and is_other_copy(self.copies[producer], place, base_sequence, base_offset)

    def forget_copies(self, producer: Producer, place: TopicPartition) -> None:
        left = {batch: at for batch, at in self.copies.pop(producer, {}).items() if batch[:2] != place}
        if left:
            self.copies[producer] = left

    def _mirrored(self, body: TransactionMirrored, at: LogPosition) -> bool:
        return self.unmirrored.remove(Producer(body.producer_id, body.epoch), body.group_id)

    def _ended(self, body: TransactionEnded, at: LogPosition) -> bool:
        return self.ending.pop(Producer(body.producer_id, body.epoch), None) is not None

    def _expiry(self, body: TransactionExpiry, at: LogPosition) -> bool:
        if not self.is_ours(body.nonce) or self.open_since() is not None or self.prepared or self.ending:
            return False
        self.expired = True  # the last decision stays: the client may not have received its response
        return True


def _comes_after(client: Producer, known: Producer) -> bool:
    """Whether an identity comes after the one that the id has: a later epoch, or the first of a new producer id."""
    if client.producer_id < 0 or known.producer_id < 0:
        return client.producer_id >= 0
    if client.producer_id == known.producer_id:
        return client.epoch > known.epoch
    return client.epoch == 0


def _continued_by(body: TransactionClaim) -> Producer | None:
    """The epoch that a claim means to continue; a new producer of the id never continues what another began."""
    is_same_client = body.client_producer_id < 0
    return Producer(body.continued_producer_id, body.continued_epoch) if is_same_client else None


def _broker_transaction(body: TransactionMember) -> BrokerTransaction | None:
    told = body.native
    if told is None:
        return None
    return BrokerTransaction(told.transactional_id, Producer(told.producer_id, told.epoch), told.level, told.timeout_ms)


def _holds(sets: Mapping[int, EpochSet], producer: Producer) -> bool:
    epochs = sets.get(producer.producer_id)
    return epochs is not None and producer.epoch in epochs


_RULES: Mapping[type, Callable[[IdView, Any, LogPosition], bool]] = MappingProxyType(
    {
        TransactionClaim: IdView._claim,
        TransactionPartitions: IdView._partitions,
        TransactionOffsets: IdView._offsets,
        TransactionMember: IdView._member,
        TransactionPrepare: IdView._prepare,
        TransactionDecision: IdView._decision,
        TransactionMirrored: IdView._mirrored,
        TransactionExpiry: IdView._expiry,
        TransactionEnded: IdView._ended,
    }
)
