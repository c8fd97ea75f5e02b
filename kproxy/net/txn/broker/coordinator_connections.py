"""Where the requests of one transactional id go: to its coordinator and its groups', which are remembered.

A broker takes one request of a connection after the other, and waits with most of these answers for its replicas. So an
id has connections of its own for them: over shared ones it would wait for all other ids.
"""

from collections.abc import Callable
from typing import Any, Final

from kproxy.codec.messages import Message, response_class
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.proxy.routing import Broker

_MOST_REMEMBERED: Final = 100


class CoordinatorConnections:
    """One attempt at a time; who asks says what is asked again."""

    def __init__(self, cluster: Cluster, connections: WriterConnections | None) -> None:
        """``connections``: closed by whoever made them; None: those of ``cluster``, which are shared."""
        self._cluster = cluster
        self._connections = connections
        self._known: dict[tuple[int, str], Broker] = {}

    async def features(self, key: str, key_type: int) -> dict[str, int]:
        """What a coordinator says the cluster has agreed on (KIP-584); empty if it can't be asked."""
        try:
            broker = await self._broker(key, key_type)
            if broker is not None:
                await self._cluster.versions(broker)
                return broker.features
        except (OSError, RemoteProtocolError):
            self._failed(key, key_type)
        return {}

    async def ask(
        self, key: str, key_type: int, request: Message, newest: int, trim: Callable[[Any, int], None]
    ) -> Message | None:
        """The answer of the coordinator of a key; None if there is none: whether it has the request is open.

        It is asked at a version as new as it serves, but not above ``newest``; ``trim`` takes out of the request what
        that version can't say.
        """
        try:
            broker = await self._broker(key, key_type)
            if broker is None:
                return None
            answer, versions = response_class(request.API_KEY), (0, newest)
            await self._cluster.versions(broker)
            if self._connections is None:
                return await self._cluster.call(broker.address, request, answer, versions, trim=trim)
            return await (await self._connections.connect(broker)).call(request, answer, versions, trim=trim)
        except (OSError, RemoteProtocolError):
            self._failed(key, key_type)
            return None

    def forget(self, key: str, key_type: int) -> None:
        """Has the coordinator of a key looked for again."""
        self._known.pop((key_type, key), None)

    def _failed(self, key: str, key_type: int) -> None:
        self._cluster.count_error("errand")
        self.forget(key, key_type)

    async def _broker(self, key: str, key_type: int) -> Broker | None:
        known = self._known.get((key_type, key))
        if known is None:
            known = await self._cluster.coordinator(key, key_type)
            if known is not None:
                if len(self._known) >= _MOST_REMEMBERED:
                    self._known.clear()
                self._known[key_type, key] = known
        return known
