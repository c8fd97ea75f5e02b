"""One transactional id at its coordinator: its producer, what is in its transaction, and how that may end.

States, checks and errors are those of Kafka's ``TransactionCoordinator`` and ``TransactionMetadata`` (KIP-98, KIP-360,
KIP-890), as measured on 4.3.0. Nothing here writes a marker: ``markers`` does, and calls ``complete``.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.testing.fake_broker.partition import Partition

LAST_EPOCH: Final = 32_766
_MOST: Final = 32_767


class TxnState(Enum):
    """The state of a transaction; while it is prepared its markers are in flight."""

    EMPTY = auto()
    ONGOING = auto()
    PREPARE_COMMIT = auto()
    PREPARE_ABORT = auto()
    COMPLETE_COMMIT = auto()
    COMPLETE_ABORT = auto()


_COMPLETE: Final = {TxnState.PREPARE_COMMIT: TxnState.COMPLETE_COMMIT, TxnState.PREPARE_ABORT: TxnState.COMPLETE_ABORT}
_NONE: Final = ErrorCode.NONE
_BUSY: Final = ErrorCode.CONCURRENT_TRANSACTIONS
#: A repeated EndTxn is a success if this is how it ended, by whether it is a commit.
_ENDED_SO: Final = {True: TxnState.COMPLETE_COMMIT, False: TxnState.COMPLETE_ABORT}


class Mark(NamedTuple):
    """A marker that was appended; it is in the log for good when the high watermark has reached ``end``."""

    partition: Partition
    leader_epoch: int
    end: int


@dataclass(slots=True)
class TransactionalId:
    """The producer that owns a transactional id, and its transaction.

    :param last_epoch: the epoch before, if a request that names it may be a repeated one; else -1.
    :param next_id: the producer id of the next transaction, once the epochs of this one have run out; else -1.
    :param former_id: the producer id before, whose epochs have run out; else -1.
    """

    producer_id: int
    epoch: int
    timeout_ms: int = 60_000
    last_epoch: int = -1
    state: TxnState = TxnState.EMPTY
    places: set[TopicPartition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    """Those whose offsets are in the transaction."""
    marks: dict[TopicPartition, Mark] = field(default_factory=dict)
    """The markers of this end that are written."""
    began_ms: int = 0
    next_id: int = -1
    former_id: int = -1

    @property
    def following(self) -> tuple[int, int]:
        """Producer id and epoch of the next transaction, if this one's end has raised the epoch."""
        return (self.producer_id, self.epoch) if self.next_id < 0 else (self.next_id, 0)

    @property
    def prepared(self) -> bool:
        """Whether the end is decided and not complete: then everything is CONCURRENT_TRANSACTIONS."""
        return self.state in _COMPLETE

    @property
    def committed(self) -> bool:
        return self.state in (TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT)

    def check(self, producer_id: int, epoch: int) -> ErrorCode:
        """Return INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED or NONE."""
        if producer_id != self.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return _NONE if epoch == self.epoch else ErrorCode.PRODUCER_FENCED

    def join(self, now: int, places: Iterable[TopicPartition] = (), groups: Iterable[str] = ()) -> ErrorCode:
        """Take partitions and groups into the transaction, which begins with the first of them."""
        if self.prepared:
            return _BUSY
        if self.state is not TxnState.ONGOING:
            self.state, self.began_ms = TxnState.ONGOING, now
        self.places.update(places)
        self.groups.update(groups)
        return _NONE

    def end(self, producer_id: int, epoch: int, committed: bool) -> ErrorCode:
        """Decide as a client asks whose epoch stays; ``prepared`` tells whether there is something to complete."""
        error = self.check(producer_id, epoch)
        if error is not _NONE:
            return error
        if self.prepared:
            return _BUSY
        if self.state is TxnState.ONGOING:
            self._prepare(committed)
            return _NONE
        return _NONE if self.state is _ENDED_SO[committed] else ErrorCode.INVALID_TXN_STATE

    def end_and_raise(self, producer_id: int, epoch: int, committed: bool) -> ErrorCode:
        """Decide as a client asks whose epoch rises with each end; a repeated request bears the epoch before.

        It may abort where nothing is open, and so gets rid of what may come late.
        """
        if self.prepared:
            return _BUSY
        repeated = self._is_former(producer_id, epoch) and self.state in _ENDED_SO.values()
        error = _NONE if repeated else self.check(producer_id, epoch)
        if error is not _NONE:
            return error
        if repeated:
            return _NONE if self.state is _ENDED_SO[committed] else ErrorCode.INVALID_TXN_STATE
        if committed and self.state is not TxnState.ONGOING:
            return ErrorCode.INVALID_TXN_STATE
        self._raise_epoch()
        self._prepare(committed)
        return _NONE

    def _is_former(self, producer_id: int, epoch: int) -> bool:
        """Tell whether that is the identity before the last rise."""
        former = (self.former_id, LAST_EPOCH) if self.epoch == 0 else (self.producer_id, self.epoch - 1)
        return (producer_id, epoch) == former

    def fence(self) -> None:
        """Abort what is open; its producer can do nothing any more."""
        self._raise_epoch()
        self._prepare(False)

    def is_expired(self, now: int) -> bool:
        """Tell whether a transaction is open for longer than its time-out."""
        return self.state is TxnState.ONGOING and now >= self.began_ms + self.timeout_ms

    def renew(self, named: int | None) -> ErrorCode:
        """Give the id to the caller, under the next epoch.

        :param named: the epoch that the caller says it has (KIP-360); the one before the last rise is a repeated
        request.
        :returns: PRODUCER_FENCED if that is another one.
        """
        if named is not None and named not in (self.epoch, self.last_epoch):
            return ErrorCode.PRODUCER_FENCED
        if named is None or named == self.epoch:
            self.last_epoch = -1 if named is None else self.epoch
            self.epoch += 1
        self.state = TxnState.EMPTY
        return _NONE

    def complete(self) -> None:
        """Note that all markers are written."""
        self.marks.clear()
        self.state = _COMPLETE[self.state]
        if self.next_id >= 0:
            self.former_id, self.last_epoch = self.producer_id, LAST_EPOCH
            (self.producer_id, self.epoch), self.next_id = self.following, -1

    def _raise_epoch(self) -> None:
        self.last_epoch, self.epoch = self.epoch, min(self.epoch + 1, _MOST)

    def _prepare(self, committed: bool) -> None:
        self.state = TxnState.PREPARE_COMMIT if committed else TxnState.PREPARE_ABORT
