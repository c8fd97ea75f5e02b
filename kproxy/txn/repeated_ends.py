"""The last end that a client asked for: it decides what a repeated EndTxn, and an InitProducerId after it, receive."""

from typing import NamedTuple

from kproxy.txn.ids import Producer
from kproxy.txn.view import IdView


class Ended(NamedTuple):
    """An end that is certain."""

    #: The client that asked for it.
    client: Producer
    committed: bool
    #: The client's identity since then.
    next_client: Producer


def last_end(view: IdView | None) -> Ended | None:
    """The last end that the log has of an id, if the client that asked for it has the id.

    A claim that aborted the transaction is no end: the identity after it may be another producer's.
    """
    last = view.last if view is not None else None
    if view is None or last is None or last.by_claim or last.next_client != view.client:
        return None
    return Ended(last.client, last.committed, last.next_client)
