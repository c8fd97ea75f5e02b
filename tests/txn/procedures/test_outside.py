"""What owners share: producer ids, as far as brokers give them."""

from typing import Any

import pytest

from kproxy.codec.messages import ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.txn.procedures.outside import OwnerTools
from kproxy.txn.txn_error import TxnError


def tools_with(new_producer_id: Any) -> OwnerTools:
    none: Any = None
    return OwnerTools(none, none, none, none, none, none, none, new_producer_id, none, "a", none, none, none)


async def test_a_producer_id_is_one_of_the_brokers() -> None:
    async def give() -> int:
        return 4000

    assert await tools_with(give).new_producer_id() == 4000


@pytest.mark.parametrize("error", [OSError("closed"), RemoteProtocolError("no version")])
async def test_without_one_the_client_asks_again(error: Exception) -> None:
    async def refuse() -> int:
        raise error

    with pytest.raises(TxnError, match=f"no producer id: {error}") as caught:
        await tools_with(refuse).new_producer_id()
    assert caught.value.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
