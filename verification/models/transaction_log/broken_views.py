"""Readers that go by another rule than kproxy's: each must be caught."""

from dataclasses import dataclass, replace
from typing import Any

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_decision import TransactionDecision, TransactionDecisionPart
from kproxy.codec._generated.transaction_partitions import TransactionPartitions
from kproxy.codec._generated.transaction_snapshot import TransactionSnapshot
from kproxy.errors import RemoteProtocolError
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry
from kproxy.txn.snapshot import PartitionLoader, Step
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.view_values import Ongoing
from verification.models.transaction_log.rules import Run


@dataclass(slots=True)
class OngoingView(IdView):
    """Takes the next epoch for claimed when a record is written under it."""

    def apply(self, body: Any, at: LogPosition) -> bool:
        """Reads PARTITIONS of the epoch after the block as a claim."""
        claim = self.claim
        if isinstance(body, TransactionPartitions) and claim is not None:
            following = body.producer_id == claim.producer_id and body.epoch >= claim.end_epoch
            self.claim = replace(claim, first_epoch=body.epoch, nonce=body.nonce) if following else claim
        return IdView.apply(self, body, at)


@dataclass(slots=True)
class ImpatientView(IdView):
    """Lets a claim abort what is prepared."""

    def apply(self, body: Any, at: LogPosition) -> bool:
        """Forgets that anything was prepared."""
        took = IdView.apply(self, body, at)
        if took and isinstance(body, TransactionClaim):
            self.aborted.update(self.prepared)
            self.prepared.clear()
        return took


@dataclass(slots=True)
class LoyalView(IdView):
    """Lets a former owner decide what is prepared."""

    def apply(self, body: Any, at: LogPosition) -> bool:
        """Takes the prepared parts out of a decision that does not count otherwise."""
        if IdView.apply(self, body, at):
            return True
        if not isinstance(body, TransactionDecision):
            return False
        named = [Producer(part.producer_id, part.epoch) for part in body.parts]
        waiting = [part for part in named if part in self.prepared]
        for part in waiting:
            self._settle(part, body.committed)
        return bool(waiting)


@dataclass(slots=True)
class BoundlessView(IdView):
    """Shows all of a former epoch, whenever it was written."""

    def _note_copies(self, row: TransactionDecisionPart, *, is_former: bool) -> None:
        IdView._note_copies(self, row, is_former=False)


@dataclass(slots=True)
class WelcomingView(IdView):
    """Lets a new producer of the id continue what the one before began."""

    def apply(self, body: Any, at: LogPosition) -> bool:
        """Takes the claim as one of the same client, which has another identity then."""
        if not isinstance(body, TransactionClaim) or body.continued_producer_id < 0 or body.client_producer_id < 0:
            return IdView.apply(self, body, at)
        took = IdView.apply(self, body.replaced(client_producer_id=-1, client_epoch=-1), at)
        if took and self.claim is not None:
            self.client = Producer(body.client_producer_id, body.client_epoch)
            self.claim = replace(self.claim, client=self.client, names_client=True)
        return took


@dataclass(slots=True)
class ForgetfulView(IdView):
    """Leaves group offsets under the epoch that they were announced under."""

    def _continue(self, former: Ongoing, owner: Producer, nonce: bytes) -> None:
        records = self.pending.pop(former.producer, None)
        IdView._continue(self, former, owner, nonce)
        if records:
            self.pending[former.producer] = records


class HastyLoader(PartitionLoader):
    """Continues from a snapshot when one chunk of it is there."""

    def take(self, entry: Entry, at: LogPosition, size: int) -> Step:
        """Takes what it can't decode for nothing."""
        was_sure = self.is_sure
        if isinstance(entry.body, TransactionSnapshot) and not was_sure:
            whole = _alone(entry.body)
            try:
                return PartitionLoader.take(self, Entry("", whole), at, size)
            except RemoteProtocolError:
                empty = TransactionSnapshot(whole.up_to, whole.writer, 0, 1, b"\0\0\1\0")
                return PartitionLoader.take(self, Entry("", empty), at, size)
        return PartitionLoader.take(self, entry, at, size)


def _alone(chunk: TransactionSnapshot) -> TransactionSnapshot:
    """The chunk as if there were no other."""
    return TransactionSnapshot(chunk.up_to, chunk.writer, 0, 1, chunk.views)


def view_class(run: Run) -> type[IdView]:
    """The reader's rule of a run."""
    if not run.is_kproxys("next"):
        return OngoingView
    if not run.is_kproxys("claim"):
        return ImpatientView
    if not run.is_kproxys("decide"):
        return LoyalView
    if not run.is_kproxys("ends"):
        return BoundlessView
    if not run.is_kproxys("continues"):
        return WelcomingView
    return IdView if run.is_kproxys("pending") else ForgetfulView


def stated(run: Run, views: tuple[IdView, ...]) -> tuple[IdView, ...]:
    """What a run's snapshots say of these views."""
    if run.rules["states"] == "no-former":
        return tuple(
            replace(view, members={part: one for part, one in view.members.items() if not view.is_former(part)})
            for view in views
        )
    if run.rules["states"] == "no-ends":
        return tuple(replace(view, copies={}) for view in views)
    return views


def loader_class(run: Run) -> type[PartitionLoader]:
    """How a run loads snapshots."""
    return PartitionLoader if run.is_kproxys("complete") else HastyLoader
