"""Tells in the trace what kproxy asks the brokers' coordinators, and what that does to what is open."""

from typing import Any, Final

import trio

from kproxy.codec.messages import ApiKey
from kproxy.testing.fake_broker import Call, FakeCluster
from kproxy.testing.fake_broker.transactional_ids import TxnState
from verification.simulation.transactions.history import TransactionHistory

_KEYS: Final = (
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)


def watch_coordinators(cluster: FakeCluster, history: TransactionHistory, *, is_harmed: bool) -> None:
    """Notes each request on its arrival, whatever becomes of it.

    ``is_harmed``: a request may come late, so that an InitProducerId fences who has got the id by its repetition.
    """

    def asked(call: Call) -> None:
        history.note(f"broker {call.broker_id} is asked {_told(call.request)}")

    def initialized(call: Call) -> None:
        asked(call)
        name = call.request.transactional_id
        owner = cluster.transactional_ids.get(name)
        if is_harmed and owner is not None and owner.state is TxnState.ONGOING:
            history.may_come_late(name, trio.current_time())

    for key in _KEYS:
        cluster.control(key, asked)
    cluster.control(ApiKey.INIT_PRODUCER_ID, initialized)


def _told(request: Any) -> str:
    """The fields that distinguish a request from others."""
    kind = type(request).__name__.removesuffix("Request")
    name = getattr(request, "transactional_id", getattr(request, "v3_and_below_transactional_id", ""))
    epoch = getattr(request, "producer_epoch", getattr(request, "v3_and_below_producer_epoch", -1))
    what = f" committed={request.committed}" if hasattr(request, "committed") else ""
    return f"{kind} of {name} as {epoch}{what}"
