"""The log of a run: one object for each content, so that it hashes fast and its views are made once."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import fields
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from kproxy.codec._generated.transaction_snapshot import TransactionSnapshot
from kproxy.codec.messages import Message
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry, RawRecord, decode
from kproxy.txn.snapshot_views import encode_views
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import IdView, LogPosition
from verification.models.transaction_log.broken_views import loader_class, view_class
from verification.models.transaction_log.rules import Run

ViewsOfIds: TypeAlias = tuple[IdView, ...]
"""One for each id of the run, in order."""
Written: TypeAlias = frozenset[tuple[int, Any]]
"""Batches: the data partition and what was written there."""


class Item(NamedTuple):
    """A record, with what the readers do not know: whose transaction it is, and what that had acknowledged."""

    raw: RawRecord
    what: str
    name: Any = None
    want: Written = frozenset()


@lru_cache(maxsize=1 << 16)
def entry_of(raw: RawRecord) -> Entry:
    """The record, decoded once."""
    return decode(*raw)


def body_of(item: Item) -> Message:
    """What a record says."""
    return entry_of(item.raw).body


class Log:
    """A log with these records, those that were deleted too."""

    def __init__(
        self, run: Run, views: ViewsOfIds, records: tuple[Item, ...] = (), before: "tuple[Log, ...]" = ()
    ) -> None:
        """``views``: what the records say; ``before``: the logs that it grew from, the empty one first."""
        self._run = run
        self.views = views
        self.records = records
        self.prefixes: tuple[Log, ...] = (*before, self)
        self._next: dict[Item, Log] = {}
        self._loaded: dict[tuple[int, int], ViewsOfIds | None] = {}
        #: Answers to questions about this log that were asked before.
        self.memo: dict[Any, Any] = {}

    def __deepcopy__(self, _: Any) -> "Log":
        return self

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return len(self.records)

    def add(self, item: Item) -> "Log":
        """The log with one record more."""
        found = self._next.get(item)
        if found is None:
            views = step(self.views, entry_of(item.raw), self.end)
            found = self._next[item] = Log(self._run, views, (*self.records, item), self.prefixes)
        return found

    def load(self, start: int, end: int) -> ViewsOfIds | None:
        """The views of a reader that came when the log began at ``start`` and has read up to ``end``; None: it is not
        sure of anything."""
        if start == 0:
            return self.prefixes[end].views
        if (start, end) not in self._loaded:
            self._loaded[start, end] = self._load(start, end)
        return self._loaded[start, end]

    def _load(self, start: int, end: int) -> ViewsOfIds | None:
        loader = loader_class(self._run)(start)
        views = empty_views(self._run)
        for offset in range(start, end):
            todo = loader.take(entry_of(self.records[offset].raw), LogPosition(offset, 0), 0)
            for view in todo.views:
                views = _with(views, _as(view_class(self._run), view))
            for entry, at in todo.records:
                views = step(views, entry, at.offset)
        return views if loader.is_sure else None


class Known:
    """What a reader knows, told from other knowledge by what a snapshot would say."""

    __slots__ = ("_said", "views")

    def __init__(self, views: ViewsOfIds) -> None:
        """``views`` stay as they are."""
        self.views = views
        self._said = encode_views(views)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known) and self._said == other._said

    def __hash__(self) -> int:
        return hash(self._said)


def empty_views(run: Run) -> ViewsOfIds:
    """Of a log that says nothing."""
    return tuple(view_class(run)(str(number)) for number in range(run.ids))


def step(views: ViewsOfIds, entry: Entry, offset: int) -> ViewsOfIds:
    """The views after a record; the old ones are not changed."""
    if isinstance(entry.body, TransactionSnapshot):
        return views
    view = deepcopy(views[int(entry.transactional_id)])
    return _with(views, view) if view.apply(entry.body, LogPosition(offset, 0)) else views


def _with(views: ViewsOfIds, view: IdView) -> ViewsOfIds:
    at = int(view.transactional_id)
    return (*views[:at], view, *views[at + 1 :])


def _as(kind: type[IdView], view: IdView) -> IdView:
    return kind(**{field.name: getattr(view, field.name) for field in fields(IdView)})


def is_known(views: Sequence[IdView], producer_id: int) -> bool:
    """Whether the views say anything of a producer id."""
    return any(producer_id in view.producer_ids() for view in views)


def verdict(views: Sequence[IdView], part: Producer) -> Verdict:
    """What the views say of an epoch of any producer."""
    given = (view.verdict(part) for view in views)
    return next((one for one in given if one is not Verdict.UNDECIDED), Verdict.UNDECIDED)
