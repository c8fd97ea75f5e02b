"""Connections of kproxy's own that carry one request at a time, and are kept for the next ones."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kproxy.config import Config
from kproxy.net.brokers.broker_client import BrokerClient
from kproxy.net.network import Network
from kproxy.proxy.routing import Address


class IdleConnections:
    """As many to each broker as requests were on their way at once."""

    def __init__(self, network: Network, config: Config) -> None:
        """Connects and asks within ``config``'s time-outs."""
        self._network = network
        self._config = config
        self._idle: dict[Address, list[BrokerClient]] = {}
        self._closed = False

    @asynccontextmanager
    async def to(self, address: Address) -> AsyncIterator[BrokerClient]:
        """A connection for one request. OSError, RemoteProtocolError if there is none to be had."""
        idle = self._idle.get(address)
        client = idle.pop() if idle else await self._open(address)
        try:
            yield client
        finally:
            self._give_back(address, client)

    async def _open(self, address: Address) -> BrokerClient:
        config = self._config
        return await BrokerClient.open(
            self._network, address, config.upstream_connect_timeout_ms, config.upstream_request_timeout_ms
        )

    def _give_back(self, address: Address, client: BrokerClient) -> None:
        if self._closed:
            client.close()
        elif not client.closed:
            self._idle.setdefault(address, []).append(client)
        else:
            # the broker may have gone: then the others would fail at their next request, too
            for other in self._idle.pop(address, []):
                other.close()

    def close(self) -> None:
        """Closes the connections that are idle, and each other one when its request is over."""
        self._closed = True
        for clients in self._idle.values():
            for client in clients:
                client.close()
        self._idle.clear()
