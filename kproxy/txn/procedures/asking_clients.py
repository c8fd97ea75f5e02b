"""Clients that ask here for ids of other instances: one that asks for long, and nowhere else, has lost its instance."""

from collections.abc import Callable
from typing import Final, NamedTuple

from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.requests import TxnRequest
from kproxy.txn.view import IdView

#: A client that asks here for so long, and nowhere else, has lost its instance: this one takes its id over.
_PATIENCE_SECONDS: Final = 3.0
#: Ids of other instances whose clients ask here.
_MOST_ASKING: Final = 10_000


class _Asking(NamedTuple):
    """A client that asks here for an id of another instance."""

    #: The client, and the last record of the id by then.
    mark: tuple[Producer, int]
    #: When it asked first and last, by ``Time.now``, and over which connection, the newest.
    since: float
    last: float
    connection: int


class AskingClients:
    """The clients that ask one instance."""

    def __init__(self, now: Callable[[], float]) -> None:
        """``now``: as ``Time.now``."""
        self._now = now
        #: By id of another instance.
        self._asking: dict[str, _Asking] = {}

    def newest(self, request: TxnRequest) -> int:
        """The newest connection over which the client has asked since it came here."""
        asking = self._asking.get(request.transactional_id)
        return max(request.connection, asking.connection if asking is not None else 0)

    def has_waited(self, view: IdView, request: TxnRequest) -> bool:
        """Whether the client that has the id asks here for long enough, while the log has nothing new of the id."""
        if request.client == NOBODY:
            return False
        now, mark = self._now(), (request.client, view.touched.offset)
        newest = self.newest(request)
        known = self._asking.get(view.transactional_id)
        is_same = known is not None and known.mark == mark and now <= known.last + _PATIENCE_SECONDS
        since = known.since if known is not None and is_same else now
        if len(self._asking) >= _MOST_ASKING:
            self._asking.clear()
        self._asking[view.transactional_id] = _Asking(mark, since, now, newest)
        return now >= since + _PATIENCE_SECONDS

    def forget(self, transactional_id: str) -> None:
        """Forgets the client of an id that has been taken over."""
        self._asking.pop(transactional_id, None)
