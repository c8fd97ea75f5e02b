"""The networks of one process: for kproxy's own connections to brokers, and for those of clients."""

from typing import TYPE_CHECKING

import structlog
import trio

from kproxy.config import Config, ExitCode, StartupError
from kproxy.config.broker_options import BrokerSecurityOptions
from kproxy.distribution import install_command
from kproxy.net.broker_sasl.broker_credentials import Credentials, Password, Token
from kproxy.net.broker_sasl.sasl_network import LoginWatch, SaslNetwork
from kproxy.net.broker_sasl.token_sources import IssuedTokens, StoredToken, TokenSource
from kproxy.net.network import Network
from kproxy.net.socket_network import SocketNetwork
from kproxy.net.tls_network import open_network
from kproxy.proxy.stats import Stats

if TYPE_CHECKING:
    from kproxy.net.broker_sasl.identities import IdentityNetworks

log = structlog.get_logger("kproxy.upstream")

_PASSWORD = "upstream.sasl.password.location"


class Networks:
    """``own`` is kproxy's own; clients have it, too, unless something else is said."""

    def __init__(
        self,
        own: Network,
        tokens: TokenSource | None = None,
        clients: Network | None = None,
        identities: "IdentityNetworks | None" = None,
    ) -> None:
        """``tokens`` and ``identities`` are kept fresh by ``run``; ``clients``: how they come to log in themselves."""
        self.own = own
        self._clients = clients
        self._identities = identities
        self._tokens = tokens

    def for_client(self, principal: str) -> Network:
        return self.on_behalf(principal) if self._clients is None else self._clients

    def on_behalf(self, principal: str) -> Network:
        """The network for requests that kproxy makes for a client: as the client if possible, else as kproxy."""
        return self.own if self._identities is None else self._identities.of(principal)

    async def run(self) -> None:
        """Keeps tokens and identities up to date; runs until cancelled."""
        async with trio.open_nursery() as nursery:
            if self._tokens is not None:
                nursery.start_soon(self._tokens.run)
            if self._identities is not None:
                nursery.start_soon(self._identities.file.watch)
            nursery.start_soon(trio.sleep_forever)


def open_networks(config: Config, stats: Stats, sockets: SocketNetwork | None = None) -> Networks:
    """As the configuration has it; made inside trio.

    StartupError names a file, or a package, that is missing; ConfigError what is wrong with a file.
    """
    network = open_network(config, stats, sockets)
    if not config.logs_in:
        return Networks(network)
    _warn_of_plain_text(config)
    tokens = _token_source(config)
    own = SaslNetwork(network, _credentials(config, tokens), LoginWatch(stats.upstream))
    identities = None
    if config.upstream_sasl_identities_file is not None:
        from kproxy.net.broker_sasl.identities import IdentityNetworks  # its file is YAML, which takes long to import

        path = config.upstream_sasl_identities_file
        identities = IdentityNetworks(network, config.upstream_sasl_mechanism, path, stats.upstream)
    return Networks(own, tokens, network if config.clients_log_in else None, identities)


def _warn_of_plain_text(config: BrokerSecurityOptions) -> None:
    """Warns of passwords and tokens that are sent without TLS."""
    secret = config.upstream_sasl_mechanism in ("PLAIN", "OAUTHBEARER", "AWS_MSK_IAM")
    local = all(server.is_loopback for server in config.bootstrap_servers)
    if secret and config.upstream_security_protocol == "sasl_plaintext" and not local:
        log.warning(
            "passwords and tokens travel to brokers in plain text: set upstream.security.protocol to sasl_ssl",
            mechanism=config.upstream_sasl_mechanism,
        )


def _credentials(config: BrokerSecurityOptions, tokens: TokenSource | None) -> Credentials:
    if tokens is not None:
        pairs = (pair.partition("=") for pair in config.upstream_sasl_oauthbearer_extensions)
        return Token(tokens, {name: value for name, _, value in pairs})
    username, location = config.upstream_sasl_username, config.upstream_sasl_password_location
    assert username is not None
    assert location is not None
    password = Password(config.upstream_sasl_mechanism, username, location, "upstream.sasl.username", _PASSWORD)
    try:
        password.password()
    except OSError as error:
        raise StartupError(str(error), ExitCode.USAGE) from None
    return password


def _token_source(config: BrokerSecurityOptions) -> TokenSource | None:
    """Where tokens come from; None if kproxy logs in with a password."""
    if config.upstream_sasl_mechanism == "AWS_MSK_IAM":
        return _signed(config.upstream_sasl_aws_region or "")
    if config.upstream_sasl_mechanism != "OAUTHBEARER":
        return None
    if config.upstream_sasl_oauthbearer_token_location is not None:
        return StoredToken(config.upstream_sasl_oauthbearer_token_location)
    return _asked_for(config)


def _signed(region: str) -> TokenSource:
    try:
        from kproxy.net.broker_sasl.msk_iam import signed_tokens
    except ImportError as error:
        raise StartupError(
            f"upstream.sasl.mechanism = 'AWS_MSK_IAM' needs the package {error.name}: {install_command('msk')}",
            ExitCode.USAGE,
        ) from None
    return IssuedTokens(signed_tokens(region), f"upstream.sasl.aws.region = '{region}' and AWS's own credentials")


def _asked_for(config: BrokerSecurityOptions) -> TokenSource:
    from kproxy.net.broker_sasl.token_endpoint import client_credentials  # HTTP takes long to import

    url, secret = (
        config.upstream_sasl_oauthbearer_token_endpoint_url,
        config.upstream_sasl_oauthbearer_client_secret_location,
    )
    assert url is not None
    assert secret is not None
    ask = client_credentials(
        url,
        config.upstream_sasl_oauthbearer_client_id or "",
        secret,
        config.upstream_sasl_oauthbearer_scope,
        config.upstream_ssl_ca_location,
    )
    return IssuedTokens(ask, "upstream.sasl.oauthbearer.client.id, .scope and .token.endpoint.url")
