"""What a query asks of kproxy's control API, patiently: kproxy may be started again at any moment."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol, TypeVar
from uuid import uuid4

from kproxy.client import ControlClient, ControlError, ControlUnreachable, Described, OwnerId
from kproxy.errors import KproxyError
from kproxy.spark.sink_options import SinkOptions
from kproxy.spark.spark_errors import KafkaError
from kproxy.txn.ids import TXN_CLIENTS

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_RANDOM_DIGITS: Final = 12
_REPORT_SECONDS: Final = 10.0


class Clock(Protocol):
    """Time, in seconds."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


class Fenced(KafkaError):
    """Another driver or query has the transactional id now: this one can commit nothing any more."""


def client_id_of(member: str) -> str:
    """The client.id for a member's data: one that no kproxy writes outside of a transaction.

    For the member ends with its kproxy, and the producer would keep sending to the next instance.
    """
    return f"{TXN_CLIENTS}{member}"


class Decider:
    """One transactional id, as its owner. All raise Fenced, and KafkaError when kproxy refuses or is away for long."""

    def __init__(self, client: ControlClient, options: SinkOptions, owner: OwnerId | None, clock: Clock = time) -> None:
        """``owner``: as ``take`` returned it, maybe in another process; None before."""
        self._client = client
        self._id = options.transactional_id
        self._timeout_ms = options.timeout_ms
        self._patience = options.retry_ms / 1000
        self._owner = owner
        self._clock = clock

    def take(self) -> OwnerId:
        """Initializes the id: fences its former owner, and aborts what it left, open or prepared.

        Nobody could commit that any more: the former owner is fenced, and the next reader of the same input writes all
        of it again. So readers of the output need not wait for it.
        """
        found = self._ask(lambda: self._client.initialize(self._id, timeout_ms=self._timeout_ms))
        if found.member_home == "kproxy":
            _LOG.warning(
                "transactional.id %r: kproxy's own log decides what this query writes. Consumers that do not read "
                "through kproxy see what was aborted, too. With transactions.home auto or broker, at brokers from "
                "Kafka 3.0 on, the brokers decide",
                self._id,
            )
        self._owner = OwnerId(found.producer_id, found.producer_epoch)
        self.abort()
        return self._owner

    def begin(self, prefix: str) -> tuple[str, Collection[str]]:
        """Begins a member; its name, and the batches that kproxy knows to be committed.

        Its data are to be written under ``client_id_of`` the name. A kproxy that is older tells no batches, and one
        that has not read its log to the end may miss the last: then a batch is written again, and aborted, for a commit
        of it changes nothing any more.
        """
        names: list[str] = []

        def begin() -> Described:
            # A begin without a response may be done, and no name can be used again.
            names.append(f"{prefix}-{uuid4().hex[:_RANDOM_DIGITS]}")
            name = names[-1]
            return self._client.begin_member(
                self._id,
                name,
                client_id=client_id_of(name),
                owner=self._owner,
                timeout_ms=self._timeout_ms,
                prefer_broker=True,
            )

        found = self._ask(begin)
        return names[-1], found.batch_ids

    def sees(self, client_id: str) -> bool:
        """Whether a client of this client.id is connected to the kproxy that decides."""
        found = self._ask(lambda: self._client.clients(client_id))
        return any(row["client_id"] == client_id for row in found["clients"])

    def prepare(self, member: str, records: int) -> None:
        """From now on only a decision ends the member. ``records``: how many were written, and acknowledged."""
        try:
            self._ask(lambda: self._client.prepare_member(self._id, member, records=records))
        except KafkaError:
            # It may be done though the response was lost, and the kproxy that has come back knows it from its log only.
            if not self._is_prepared(member):
                raise

    def check_owner(self) -> None:
        """Raises Fenced if another owner has the id now; an unknown owner, or no answer, is not an error."""
        try:
            owner = self._client.describe(self._id).owner
        except (ControlError, ControlUnreachable):
            return
        if owner is not None and owner != self._owner:
            raise Fenced(_fenced(self._id))

    def abandon(self, member: str) -> None:
        """Has it aborted if kproxy can be asked; if not, the next decision or its time-out does that."""
        try:
            self._client.abort_member(self._id, member)
        except (ControlError, ControlUnreachable):
            return

    def commit(self, batch_id: str, members: Sequence[str]) -> None:
        """Commits these members and aborts all others; may be repeated, by anyone, and changes nothing then."""
        self._ask(
            lambda: self._client.commit(
                self._id, batch_id=batch_id, members=members, owner=self._owner, abort_others=True
            )
        )

    def abort(self) -> None:
        """Aborts all that is open or prepared; called after ``take``."""
        owner = self._owner
        assert owner is not None
        self._ask(lambda: self._client.abort(self._id, owner=owner, abort_others=True))

    def _is_prepared(self, member: str) -> bool:
        found = self._ask(lambda: self._client.describe(self._id))
        return any(part.name == member and part.prepared for part in found.parts)

    def _ask(self, ask: Callable[[], _T]) -> _T:
        began, pause, report_at = self._clock.monotonic(), _FIRST_PAUSE, 0.0
        while True:
            try:
                return ask()
            except (ControlError, ControlUnreachable) as error:
                if not _may_come_right(error):
                    raise self._told(error) from None
                waited = self._clock.monotonic() - began
                if waited + pause > self._patience:
                    tried = f"tried for {waited:.0f} s, see kproxy.retry.timeout.ms"
                    raise KafkaError(f"{self._told(error)} ({tried})") from None
                if waited >= report_at:
                    report_at = waited + _REPORT_SECONDS
                    left = self._patience - waited
                    _LOG.warning("transactional.id %r waits up to %.0f s for kproxy: %s", self._id, left, error)
            self._clock.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _told(self, error: KproxyError) -> KafkaError:
        if isinstance(error, ControlError) and error.error in _FENCED:
            return Fenced(_fenced(self._id))
        return KafkaError(f"transactional.id {self._id!r}: {error}")


def _fenced(transactional_id: str) -> str:
    way_out = "stop one of the two, or give each an id of its own"
    return f"another driver or query has taken transactional.id {transactional_id!r}: {way_out}"


_FENCED: Final = ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


def _may_come_right(error: KproxyError) -> bool:
    return isinstance(error, ControlUnreachable) or (isinstance(error, ControlError) and error.retriable)
