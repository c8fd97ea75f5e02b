"""Refusal of data of a client that writes in transactions or not at all, while none is open for it."""

from collections.abc import Callable, Sequence

from kproxy.codec.messages import ErrorCode
from kproxy.txn.ids import TXN_CLIENTS
from kproxy.txn.requests import ClientBatch, Written
from kproxy.txn.txn_error import TxnError


class NoTransaction:
    """Refuses the requests of a client that writes in transactions only, while none is open for it."""

    def took(self, connection: int, *, answered: bool) -> None:
        """Nothing depends on it."""

    def came(self, connection: int, batches: Sequence[ClientBatch], arrival_ms: int) -> None:
        """Nothing of it is written."""

    async def write(
        self, batches: Sequence[ClientBatch], *, refused: bool, accepted: Callable[[], None]
    ) -> Sequence[Written]:
        """Refuses all."""
        why = f"no transaction is open here for this client.id, and none that begins {TXN_CLIENTS} writes without"
        raise TxnError(ErrorCode.INVALID_TXN_STATE, why)

    def takes_at_once(self, batches: Sequence[ClientBatch]) -> bool:
        """Never: ``write`` refuses them."""
        return False

    def write_at_once(self, batches: Sequence[ClientBatch], written: Callable[[Sequence[Written]], None]) -> None:
        """Never called: nothing is taken at once."""

    def failed(self, why: str) -> None:
        """Nothing is open that could be doomed."""

    def done(self) -> None:
        """Nothing waits for it."""
