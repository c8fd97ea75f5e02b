"""ListTransactions (66): versions 0 to 2. The transactional ids that a broker coordinates (KIP-664)."""

import re

from kproxy.codec._generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransactionState,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker.apis.describe_transactions import NAMES
from kproxy.testing.fake_broker.coordination import coordinator_error
from kproxy.testing.fake_broker.fake_api import Api, Call


async def handle(call: Call) -> ListTransactionsResponse:
    """List the ids of this broker that pass the filters; those of state and producer id, and the pattern."""
    request: ListTransactionsRequest = call.request
    rows = [
        ListTransactionsResponseTransactionState(name, owner.producer_id, NAMES[owner.state])
        for name, owner in sorted(call.cluster.transactional_ids.items())
        if coordinator_error(call, name) is ErrorCode.NONE
        and (not request.state_filters or NAMES[owner.state] in request.state_filters)
        and (not request.producer_id_filters or owner.producer_id in request.producer_id_filters)
        and (not request.transactional_id_pattern or re.fullmatch(request.transactional_id_pattern, name))
    ]
    unknown = [state for state in request.state_filters if state not in NAMES.values()]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)


API = Api(ApiKey.LIST_TRANSACTIONS, (0, 2), handle)
