"""Connections of kproxy's own that carry one request at a time, and are kept for the next ones."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeAlias

import trio

from kproxy.config.broker_options import BrokerOptions
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.backoff import Backoff
from kproxy.net.brokers.broker_client import BrokerClient
from kproxy.net.brokers.contacts import Contacts
from kproxy.net.brokers.response_room import ResponseRoom
from kproxy.net.network import Network
from kproxy.proxy.routing import Address

#: OSError or RemoteProtocolError if the broker at an address, to which this is a new connection, is not to be used.
Verify: TypeAlias = Callable[[BrokerClient, Address], Awaitable[None]]


class _Shunned(NamedTuple):
    reason: str
    until: float
    backoff: Backoff


class Pool:
    """Connections to each broker, one for each request in flight, at most ``most``; further requests wait.

    A broker answers the requests of a connection one by one. So requests that may take long have a pool of their own.
    An address where something answers that is no broker is not tried again for a while.
    """

    def __init__(
        self,
        network: Network,
        config: BrokerOptions,
        room: ResponseRoom,
        verify: Verify | None = None,
        most: int = 1 << 30,
        contacts: Contacts | None = None,
    ) -> None:
        """Connects and asks within ``config``'s time-outs. ``room``: for responses, of all pools of the process.

        ``verify`` raises an error if a broker is not to be used. ``contacts`` record which brokers answer.
        """
        self._responses = room
        self._verify = verify
        self._network = network
        self._config = config
        self._most = most
        self._contacts = contacts
        self._room: dict[Address, trio.Semaphore] = {}
        self._idle: dict[Address, list[BrokerClient]] = {}
        self._used: dict[Address, set[BrokerClient]] = {}
        self._closed = False
        #: Brokers that did not answer as brokers do: why, when to try again (trio's clock, seconds), and the pauses.
        self._shunned: dict[Address, _Shunned] = {}

    @asynccontextmanager
    async def to(self, address: Address) -> AsyncIterator[BrokerClient]:
        """A connection for one request. OSError, RemoteProtocolError if none is available."""
        room = self._room.get(address) or self._room.setdefault(address, trio.Semaphore(self._most))
        async with room:
            idle = self._idle.get(address)
            client = idle.pop() if idle else await self._open(address)
            used = self._used.setdefault(address, set())
            used.add(client)
            try:
                yield client
            except (OSError, RemoteProtocolError) as error:
                if client.closed:
                    self._failed(address, error)
                raise
            finally:
                used.discard(client)
                if not used:
                    self._used.pop(address, None)
                self._give_back(address, client)

    async def _open(self, address: Address) -> BrokerClient:
        config, shunned = self._config, self._shunned.get(address)
        if shunned is not None and trio.current_time() < shunned.until:
            raise RemoteProtocolError(shunned.reason)
        try:
            client = await BrokerClient.open(
                self._network,
                address,
                config.upstream_connect_timeout_ms,
                config.upstream_request_timeout_ms,
                self._responses,
            )
        except RemoteProtocolError as error:
            backoff = Backoff(config) if shunned is None else shunned.backoff
            self._shunned[address] = _Shunned(str(error), trio.current_time() + backoff.next(), backoff)
            self._failed(address, error)
            raise
        except OSError as error:
            self._failed(address, error)
            raise
        self._shunned.pop(address, None)
        try:
            if self._verify is not None:
                await self._verify(client, address)
        except BaseException as error:
            if isinstance(error, (OSError, RemoteProtocolError)):
                self._failed(address, error)
            client.close()
            raise
        client.verified()
        if self._contacts is not None:
            self._contacts.answered(address)
        return client

    def _failed(self, address: Address, error: OSError | RemoteProtocolError) -> None:
        if self._contacts is not None:
            self._contacts.failed(address, error)

    def is_connected(self, address: Address) -> bool:
        """Whether a connection to a broker is idle."""
        return bool(self._idle.get(address))

    def has_lost(self, address: Address) -> bool:
        """Whether the broker at an address has ended a connection that is idle."""
        return any(client.peer_closed for client in self._idle.get(address, ()))

    def has_witness(self, address: Address) -> bool:
        """Whether a connection shows that the broker at an address is still the one that was verified last."""
        verified = (*self._used.get(address, ()), *self._idle.get(address, ()))
        return any(not client.peer_closed for client in verified)

    def _give_back(self, address: Address, client: BrokerClient) -> None:
        if self._closed:
            client.close()
        elif not client.closed:
            self._idle.setdefault(address, []).append(client)
        else:
            self.close_idle(address)  # the broker may have gone: then the others would fail at their next request, too

    def close_idle(self, address: Address) -> None:
        """Closes the connections to a broker that are idle."""
        for client in self._idle.pop(address, ()):
            client.close()

    def close(self) -> None:
        """Closes the connections that are idle, and each other one when its request has ended."""
        self._closed = True
        for address in list(self._idle):
            self.close_idle(address)
