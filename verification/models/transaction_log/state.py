"""The state of a run: the log, the data, the requests that are in flight, and what each instance knows."""

from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from kproxy.txn.ids import Producer
from kproxy.txn.verdict import Verdict
from verification.models.transaction_log.bodies import CLIENT
from verification.models.transaction_log.broker import Table
from verification.models.transaction_log.log import Known, Log, ViewsOfIds, Written, empty_views, verdict
from verification.models.transaction_log.rules import BUDGETS, Run

#: Where a request goes that does not go to a data partition.
LOG, SNAPSHOT, DELETE, REJECT, EXPIRE = "log", "snapshot", "delete", "reject", "expire"
NOBODY: Final = -1

Batch: TypeAlias = tuple[Producer, int, Any]
"""In a data partition: under which producer, at which sequence, what."""


class Request(NamedTuple):
    """A request in flight. The first field gives requests an order, so that equal bags of them are equal."""

    order: tuple[int, str, Producer, int, str]
    source: int
    to: int | str
    producer: Producer
    sequence: int
    body: Any


@lru_cache(maxsize=1 << 16)
def request(source: int, to: int | str, producer: Producer, sequence: int, body: Any) -> Request:
    """A request of instance ``source``; ``NOBODY`` if nobody waits for its response."""
    return Request((source, str(to), producer, sequence, repr(body)), source, to, producer, sequence, body)


class Own(NamedTuple):
    """A claim that was sent: its generation, first epoch and number (the nonce)."""

    generation: int
    first: Producer
    number: int


class Actor(NamedTuple):
    """An instance of kproxy with its client; or a member of a transaction."""

    phase: str = "idle"
    #: It has read the log so far, at least.
    read: int = 0
    own: Own | None = None
    #: The next sequence of its appends to the log, the next epoch of its block.
    sequence: int = 0
    epoch: int = 0
    #: The transaction: its name, its part, the batches to write (partition, number), their acknowledged offsets.
    name: Any = None
    part: Producer = Producer(-1, -1)
    todo: frozenset[tuple[int, int]] = frozenset()
    acked: frozenset[tuple[tuple[int, int], int]] = frozenset()
    #: Batches that were sent more than once.
    again: frozenset[tuple[int, int]] = frozenset()
    must_abort: bool = False
    waits: Request | None = None
    #: What precedes the commit; the group's generation that its member knows, and the transaction's.
    gates: tuple[str, ...] = ()
    generation: int = 0
    began: int = 0
    #: The client's identity; whether it has gone to another instance.
    client: Producer = CLIENT
    left: bool = False
    #: Former epochs of what it continues, each with the ends of its data by partition.
    former: tuple[tuple[Producer, tuple[tuple[int, int], ...]], ...] = ()


class Told(NamedTuple):
    """A client heard that its transaction was committed, or not."""

    name: Any
    part: Producer
    committed: bool
    again: bool = False


class Reported(NamedTuple):
    """A part of which somebody heard that it is prepared."""

    part: Producer
    want: Written


class Asking(NamedTuple):
    """A client whose instance has crashed, and that repeats its EndTxn (to commit)."""

    name: Any
    part: Producer


class Open(NamedTuple):
    """What a client knows of its transaction when it goes to another instance."""

    client: Producer
    name: Any
    part: Producer
    todo: frozenset[tuple[int, int]]
    acked: frozenset[tuple[int, int]]
    gates: tuple[str, ...]
    #: Whether it has asked for the commit.
    asks: bool


class Tail(NamedTuple):
    """A reader that goes from record to record."""

    start: int
    position: int
    known: Known | None


class State(NamedTuple):
    """All of it."""

    log: Log
    start: int
    table: Table
    data: tuple[tuple[tuple[Batch, ...], Table], ...]
    flying: tuple[Request, ...]
    actors: tuple[Actor, ...]
    told: frozenset[Told]
    reported: frozenset[Reported]
    number: int
    left: tuple[int, ...]
    tail: Tail | None
    group: tuple[int, int] | None
    asking: Asking | None
    #: Producer ids that are rejected, in a partition of the log that has no order with the other.
    rejected: frozenset[int]
    open: Open | None = None
    #: Identities, each with the first epoch of the claim, or the epoch of the commit, by which a client was given it.
    given: frozenset[tuple[Producer, Producer]] = frozenset()

    def verdict(self, part: Producer) -> Verdict:
        """What readers see of an epoch that have read all."""
        return Verdict.ABORTED if part.producer_id in self.rejected else verdict(self.log.views, part)

    def budget(self, what: str) -> int:
        """How often it may still happen."""
        return self.left[BUDGETS.index(what)]

    def spend(self, what: str) -> "State":
        """It has happened."""
        at = BUDGETS.index(what)
        return self._replace(left=(*self.left[:at], self.left[at] - 1, *self.left[at + 1 :]))

    def put(self, number: int, **changes: Any) -> "State":
        """With an actor changed."""
        changed = self.actors[number]._replace(**changes)
        return self._replace(actors=(*self.actors[:number], changed, *self.actors[number + 1 :]))

    def send(self, *requests: Request) -> "State":
        """With more in flight."""
        return self._replace(flying=tuple(sorted((*self.flying, *requests))))

    def views(self, position: int) -> ViewsOfIds:
        """What an instance knows that has read up to there: loaded from the log start, or read while it was there."""
        loaded = self.log.load(self.start, position) if position >= self.start else None
        return self.log.prefixes[position].views if loaded is None else loaded


def first_state(run: Run) -> State:
    """Nothing has happened yet."""
    views = empty_views(run)
    first = Actor(generation=run.group)
    return State(
        log=Log(run, views),
        start=0,
        table=(),
        data=(((), ()),) * run.partitions,
        flying=(),
        actors=(first, *[Actor()] * (run.instances - 1)),
        told=frozenset(),
        reported=frozenset(),
        number=1,
        left=tuple(getattr(run, name) for name in BUDGETS),
        tail=Tail(0, 0, Known(views)) if run.tail else None,
        group=(1, 0) if run.group else None,
        asking=None,
        rejected=frozenset(),
    )


Move: TypeAlias = tuple[str, State]
"""What happened, and the state after it."""


def who(i: int) -> str:
    """An actor's name in traces."""
    return "ABC"[i]
