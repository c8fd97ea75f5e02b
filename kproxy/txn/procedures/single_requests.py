"""``per.request``: each Produce request of some clients is a transaction of its own, over all its partitions."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from kproxy.txn.procedures.managed_outside import ManagedTools
from kproxy.txn.procedures.request_transaction import RequestTransaction

#: Clients whose producers are kept; of more, those that do nothing are forgotten.
_MOST_CLIENTS: Final = 1_000


class SingleRequests:
    """Transactions of single requests, for the clients of the patterns of ``per.request``."""

    def __init__(self, tools: ManagedTools, patterns: Sequence[str], timeout_ms: int) -> None:
        """``patterns`` of client.ids; ``timeout_ms``: of each transaction."""
        self._tools = tools
        self._patterns = patterns
        self._timeout_ms = timeout_ms
        self._clients: dict[str, RequestTransaction] = {}

    @property
    def some(self) -> bool:
        """Whether there may be any."""
        return bool(self._patterns)

    def of(self, client_id: str) -> RequestTransaction | None:
        if not any(fnmatchcase(client_id, pattern) for pattern in self._patterns):
            return None
        found = self._clients.get(client_id)
        if found is None:
            if len(self._clients) >= _MOST_CLIENTS:
                self._clients = {name: one for name, one in self._clients.items() if not one.is_idle}
            name = f"per-request-{self._tools.instance_id}-{client_id}"
            found = self._clients[client_id] = RequestTransaction(self._tools, name, client_id, self._timeout_ms)
        return found
