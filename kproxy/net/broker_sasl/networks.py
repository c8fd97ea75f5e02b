"""The networks of one process: how its own connections reach brokers, and how those of clients do."""

import trio

from kproxy.config import Config, ExitCode, StartupError
from kproxy.net.broker_sasl.credentials import Credentials, Password, Token
from kproxy.net.broker_sasl.network import LoginWatch, SaslNetwork
from kproxy.net.broker_sasl.token_endpoint import client_credentials
from kproxy.net.broker_sasl.tokens import IssuedTokens, StoredToken, TokenSource
from kproxy.net.network import Network
from kproxy.net.socket_network import SocketNetwork
from kproxy.net.tls_network import open_network
from kproxy.proxy.stats import Stats

_PASSWORD = "upstream.sasl.password.location"


class Networks:
    """``own`` is kproxy's own."""

    def __init__(self, own: Network, clients: Network, tokens: TokenSource | None) -> None:
        """``tokens`` are kept fresh by ``run``."""
        self.own = own
        self._clients = clients
        self._tokens = tokens

    def for_client(self, principal: str) -> Network:
        """What carries the requests of a client."""
        return self._clients

    async def run(self) -> None:
        """Keeps fresh what logins need, for ever."""
        if self._tokens is not None:
            await self._tokens.run()
        await trio.sleep_forever()


def open_networks(config: Config, stats: Stats, sockets: SocketNetwork | None = None) -> Networks:
    """As the configuration has it; made inside trio. StartupError names a file, or a package, that is missing."""
    network = open_network(config, stats, sockets)
    if not config.logs_in:
        return Networks(network, network, None)
    tokens = _token_source(config)
    own = SaslNetwork(network, _credentials(config, tokens), LoginWatch(stats))
    return Networks(own, network if config.clients_log_in else own, tokens)


def _credentials(config: Config, tokens: TokenSource | None) -> Credentials:
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


def _token_source(config: Config) -> TokenSource | None:
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
            f"upstream.sasl.mechanism = 'AWS_MSK_IAM' needs the package {error.name}: pip install 'kproxy[msk]'",
            ExitCode.USAGE,
        ) from None
    return IssuedTokens(signed_tokens(region), f"upstream.sasl.aws.region = '{region}' and AWS's own credentials")


def _asked_for(config: Config) -> TokenSource:
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
