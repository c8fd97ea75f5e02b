"""What a client is answered that asks again for an end that is in the log."""

from kproxy.txn.ids import Producer
from kproxy.txn.view import IdView


def answered_end(view: IdView | None, client: Producer, *, committed: bool) -> Producer | None:
    """The client's identity after its EndTxn, if the last decision of the id is the one that it asks for; else None.

    A claim that aborted the transaction is no answer: the identity after it may be another producer's. Nor is a
    decision after which another producer has taken the id.
    """
    last = view.last if view is not None else None
    if view is None or last is None or last.by_claim or last.next_client != view.client:
        return None
    return last.next_client if (last.client, last.committed) == (client, committed) else None
