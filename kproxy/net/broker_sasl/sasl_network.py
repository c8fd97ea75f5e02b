"""A network that logs in on each connection to a broker."""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog
import trio

from kproxy.codec.messages import ApiKey, response_class
from kproxy.net.broker_sasl.broker_credentials import Credentials
from kproxy.net.broker_sasl.renewing_io import RenewingIO
from kproxy.net.brokers.broker_client import BrokerClient
from kproxy.net.network import ByteIO, Network, NetworkListener
from kproxy.proxy.broker_login.broker_mechanisms import LoginRefused
from kproxy.proxy.broker_login.login import Login, LoginFrames
from kproxy.proxy.routing import Address
from kproxy.proxy.upstream_stats import UpstreamStats

log = structlog.get_logger("kproxy.upstream")

_NEWEST_AUTHENTICATE: Final = 2
#: Renewals bear negative correlation ids far from any client's own.
_FAR: Final = 1 << 30


class LoginWatch:
    """Counts failed logins and logs the first of a row; before the first success the caller reports it."""

    def __init__(self, stats: UpstreamStats, *, tells_first: bool = False) -> None:
        """Counts in ``stats.errors``. ``tells_first``: nobody else tells that the first login failed."""
        self._stats = stats
        self._fails: bool | None = False if tells_first else None

    def succeeded(self) -> None:
        if self._fails:
            log.info("login at brokers succeeded again")
        self._fails = False

    def counts(self) -> None:
        """Counts a failed login without logging it."""
        errors = self._stats.errors
        errors["authentication"] = errors.get("authentication", 0) + 1

    def failed(self, error: Exception) -> None:
        self.counts()
        if self._fails is False:
            log.error("cannot log in at a broker; retrying", reason=str(error))
            self._fails = True


class SaslNetwork:
    """``kproxy.net.network.Network``, with one identity at the brokers."""

    def __init__(self, network: Network, credentials: Credentials, watch: LoginWatch) -> None:
        self._network = network
        self._credentials = credentials
        self._watch = watch

    async def connect(self, host: str, port: int, timeout_ms: int) -> ByteIO:
        """As ``Network``; LoginRefused, RemoteProtocolError if the broker does not let kproxy in."""
        deadline = trio.current_time() + timeout_ms / 1000
        io = await self._network.connect(host, port, timeout_ms)
        address = Address(host, port)
        try:
            with trio.fail_at(deadline):
                logged_in = await self._log_in(io, address, timeout_ms)
        except trio.TooSlowError:
            io.close()
            raise OSError(f"{address} did not finish a login within {timeout_ms} ms") from None
        except BaseException:
            io.close()
            raise
        return logged_in

    async def _log_in(self, io: ByteIO, address: Address, timeout_ms: int) -> ByteIO:
        client = await BrokerClient.over(io, address, timeout_ms)
        try:
            if ApiKey.SASL_AUTHENTICATE not in client.versions:
                raise LoginRefused("the broker has no SaslAuthenticate: Kafka 1.0 or later is needed")
            version = min(_NEWEST_AUTHENTICATE, client.versions[ApiKey.SASL_AUTHENTICATE][1])
            login = await self._login(version)
            lifetime_ms = await _exchange(client, login)
        except LoginRefused as error:
            refused = LoginRefused(f"login at {address}: {error}")
            self._watch.failed(refused)
            raise refused from None
        self._watch.succeeded()
        renewals = _Renewals(partial(self._login, version), self._watch, address)
        return RenewingIO(io, renewals, lifetime_ms, timeout_ms) if lifetime_ms else io

    async def _login(self, version: int) -> Login:
        credentials = self._credentials
        try:
            mechanism = await credentials.mechanism()
        except OSError as error:
            raise LoginRefused(str(error)) from None
        return Login(mechanism, credentials.who, credentials.check, version)

    async def listen(self, host: str, port: int, backlog: int) -> Sequence[NetworkListener]:
        """As ``Network``: clients are not asked here."""
        return await self._network.listen(host, port, backlog)

    def wall(self) -> float:
        return self._network.wall()


@dataclass(frozen=True, slots=True)
class _Renewals:
    """The logins of one connection (``kproxy.net.broker_sasl.renewing_io.Renewals``)."""

    login: Callable[[], Awaitable[Login]]
    watch: LoginWatch
    address: Address

    async def begin(self) -> LoginFrames:
        return LoginFrames(await self.login(), -_FAR - random.getrandbits(29))

    def succeeded(self) -> None:
        self.watch.succeeded()

    def failed(self, error: Exception) -> None:
        self.watch.failed(LoginRefused(f"login at {self.address}, renewed: {error}"))


async def _exchange(client: BrokerClient, login: Login) -> int:
    """The lifetime of the login, in ms. LoginRefused, OSError, RemoteProtocolError."""
    asked = login.start()
    while True:
        following = login.answer(
            await client.call(asked.request, response_class(asked.request.API_KEY), (asked.version,) * 2)
        )
        if following is None:
            return login.lifetime_ms
        asked = following
