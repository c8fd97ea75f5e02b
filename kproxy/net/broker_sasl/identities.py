"""The file that maps clients to identities at the brokers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from kproxy.config.identity_file import EVERYBODY, BrokerIdentity, load_identities
from kproxy.net.broker_sasl.broker_credentials import Password
from kproxy.net.broker_sasl.sasl_network import LoginWatch, SaslNetwork
from kproxy.net.network import ByteIO, Network, NetworkListener
from kproxy.net.watched_file import WatchedFile
from kproxy.proxy.broker_login.broker_mechanisms import LoginRefused
from kproxy.proxy.upstream_stats import UpstreamStats

log = structlog.get_logger("kproxy.upstream")

OPTION = "upstream.sasl.identities.file"


class IdentityNetworks:
    """A network for each principal; made at its first use, and again after the file has changed."""

    def __init__(self, network: Network, mechanism: str, path: Path, stats: UpstreamStats) -> None:
        """ConfigError if the file can't be used; later the last one that could be stays in use."""
        self._network = network
        self._mechanism = mechanism
        self._stats = stats
        #: To be watched.
        self.file = WatchedFile(path, load_identities, OPTION)
        self._made: dict[str, Network] = {}
        self.file.use = lambda _: self._made.clear()

    def of(self, principal: str) -> Network:
        """The network of a client; one that refuses all connections for a client that the file does not name."""
        identities = self.file.content
        name = principal if principal in identities else EVERYBODY
        if name not in identities:
            return _Closed(self._network, principal, LoginWatch(self._stats))
        if name not in self._made:
            self._made[name] = self._log_in_as(name, identities[name])
        return self._made[name]

    def _log_in_as(self, principal: str, identity: BrokerIdentity) -> Network:
        where = f"{OPTION}: {principal}: password.location"
        name = f"{OPTION}: {principal}: username"
        credentials = Password(self._mechanism, identity.username, identity.password, name, where)
        return SaslNetwork(self._network, credentials, LoginWatch(self._stats, tells_first=True))


@dataclass(frozen=True, slots=True)
class _Closed:
    """For clients without an identity at the brokers: refuses all connections."""

    _network: Network
    _principal: str
    _watch: LoginWatch

    async def connect(self, host: str, port: int, timeout_ms: int) -> ByteIO:
        self._watch.counts()
        log.warning("a client has no identity at the brokers", principal=self._principal, option=OPTION)
        raise LoginRefused(f"{self._principal!r} is nobody at the brokers: see {OPTION}")

    async def listen(self, host: str, port: int, backlog: int) -> Sequence[NetworkListener]:
        return await self._network.listen(host, port, backlog)

    def wall(self) -> float:
        return self._network.wall()
