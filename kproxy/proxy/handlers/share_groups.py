"""Share groups (KIP-932): ShareGroupHeartbeat (76), ShareFetch (78), ShareAcknowledge (79).

Brokers decide which records a member acquires, and count how often each one is delivered. They know nothing of the
transactions that kproxy decides: records that are not committed would be delivered, and those that kproxy held back
would be archived after a few deliveries. So a topic that holds such transactions is refused. Transactions that the
brokers decide are filtered by them (``share.isolation.level`` of the group).
"""

from collections.abc import Callable
from typing import Any, Final

from kproxy.budget import BATCH_STEPS, RequestBudget, is_long
from kproxy.codec._generated.share_fetch import ShareFetchRequest, ShareFetchResponse
from kproxy.codec._generated.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kproxy.codec.batch import HEADER_SIZE
from kproxy.codec.messages import ErrorCode, Message
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.context import Context
from kproxy.proxy.handlers.addresses import NodeEndpoints
from kproxy.proxy.handlers.base import Exchange, Handler, Local
from kproxy.proxy.routing import is_own_topic
from kproxy.txn.visibility import has_transactions

_LOOKED_AT: Final = "looked_at"
_WHY: Final = (
    "it holds transactions that kproxy decides, and share groups would read them before their commit and after their "
    "abort. Let the brokers decide them (transactions.home=broker or broker-fenced), or read the topic with a consumer "
    "group"
)


class ShareGroupHeartbeat(Handler):
    """Refuses a member that subscribes to a topic whose transactions kproxy decides, or to one of kproxy's own."""

    def rewrites_this(self, ctx: Context, version: int, request: memoryview) -> bool:
        """Always: any request may name such a topic. Its response is relayed."""
        return True

    def lift(self, ctx: Context, exchange: Exchange, budget: RequestBudget) -> Message | Local:
        request: ShareGroupHeartbeatRequest = exchange.request
        views = ctx.services.views
        for name in request.subscribed_topic_names or ():
            if is_own_topic(name):
                return _refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{name} is a topic of kproxy's own")
            if views is not None and views.has_written(name):
                return _refused(ErrorCode.INVALID_REQUEST, f"topic {name} is closed to share groups: {_WHY}")
        return request


class ShareFetch(NodeEndpoints):
    """Refuses partitions whose records are of transactions that kproxy decides; rewrites the addresses of leaders."""

    def lift(self, ctx: Context, exchange: Exchange, budget: RequestBudget) -> Message:
        """The request, with a bound on the response as for Fetch."""
        request: ShareFetchRequest = exchange.request
        most = ctx.policy.fetch_max_bytes
        return request if request.max_bytes <= most else request.replaced(max_bytes=most)

    def long_work(
        self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget
    ) -> Callable[[], None] | None:
        """The look at many batches."""
        size = sum(len(row.records or b"") for topic in response.responses for row in topic.partitions)
        if not is_long(size // HEADER_SIZE * BATCH_STEPS):
            return None

        def look() -> None:
            self._refuse(response)
            exchange.notes[_LOOKED_AT] = True

        return look

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Message:
        if _LOOKED_AT not in exchange.notes:
            self._refuse(response)
        return super().lower(ctx, exchange, response, budget)

    def _refuse(self, response: ShareFetchResponse) -> None:
        for topic in response.responses:
            for row in topic.partitions:
                if row.records and _holds_transactions(row.records):
                    row.records, row.acquired_records = b"", []
                    row.error_code, row.error_message = ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"refused: {_WHY}"


def _holds_transactions(records: bytes | bytearray | memoryview) -> bool:
    try:
        return has_transactions(records)
    except RemoteProtocolError:
        return True  # nobody can tell


def _refused(error: ErrorCode, why: str) -> Local:
    return Local(ShareGroupHeartbeatResponse(error_code=error, error_message=why))
