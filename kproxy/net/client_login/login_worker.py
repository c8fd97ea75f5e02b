"""Does the slow part of clients' logins: computes hashes, requests keys, delays refusals."""

import hmac
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import structlog
import trio

from kproxy.config import Config, ExitCode, StartupError
from kproxy.config.client_options import ClientLoginOptions
from kproxy.distribution import install_command
from kproxy.net.client_login.credential_file import CredentialError, CredentialFile
from kproxy.net.log_limit import LogLimit
from kproxy.proxy.client_login.policy import LoginPolicy
from kproxy.proxy.client_login.steps import Accepted, PasswordCheck, Refused, Verdict
from kproxy.proxy.client_login.stored_credentials import DECOY_BYTES, Credentials, Verifier
from kproxy.proxy.commands import CheckLogin, DelayRefusal
from kproxy.proxy.senders import sender_of

if TYPE_CHECKING:
    from kproxy.net.client_login.token_checker import TokenChecker

log = structlog.get_logger("kproxy.login")

#: Hashes of passwords that are computed at a time: clients that reconnect all at once must not take all processors.
_HASHES_AT_ONCE: Final = 2
#: Of these, for the clients of one address: the other is left to somebody else, however many guess there.
_HASHES_OF_AN_ADDRESS: Final = 1
_NONCE_BYTES: Final = 24
_SEAL_KEY_BYTES: Final = 32
_MOST_SEALED: Final = 10_000
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_BEARER: Final = "OAUTHBEARER"


class LoginWorker:
    """Serves the logins of all connections."""

    def __init__(self, config: ClientLoginOptions) -> None:
        """StartupError if a file, or what a mechanism needs, is missing. Inside trio."""
        self._delay_seconds = config.connection_failed_authentication_delay_ms / 1000
        self._hashing = trio.CapacityLimiter(_HASHES_AT_ONCE)
        #: By address, while clients from there wait for a hash.
        self._queues: dict[str, _Queue] = {}
        #: By verifier the password that it was seen to fit, under a key that dies with this process: when a thousand
        #: clients come back at once, each hash is computed once. Guesses cost as much as ever.
        self._sealed: dict[Verifier, bytes] = {}
        self._seal_key = secrets.token_bytes(_SEAL_KEY_BYTES)
        self._lines = LogLimit()
        self._tokens = _token_checker(config) if _BEARER in config.sasl_enabled_mechanisms else None
        nobody = Credentials(secrets.token_bytes(DECOY_BYTES), {})
        file = _credential_file(config)
        self.policy = LoginPolicy(
            config.sasl_enabled_mechanisms,
            config.connections_max_reauth_ms,
            file.current if file is not None else lambda: nobody,
            lambda: secrets.token_urlsafe(_NONCE_BYTES),
        )

    async def serve(
        self,
        command: CheckLogin | DelayRefusal,
        client_id: str,
        peer: str,
        has_gone: Callable[[], bool] = lambda: False,
    ) -> None:
        """Carries out what a login waits for. ``has_gone``: the client has disconnected."""
        if isinstance(command, DelayRefusal):
            self._log(command.reason, mechanism=command.mechanism, client_id=client_id, peer=peer)
            await trio.sleep(self._delay_seconds)
        elif isinstance(command.check, PasswordCheck):
            address = sender_of(peer.rpartition(":")[0])
            command.checked(await self._password(command.check, address, has_gone))
        elif self._tokens is not None:
            command.checked(await self._tokens.check(command.check))

    def _log(self, reason: str, **who: str) -> None:
        """Logs a refusal, but not each of many: a client that guesses passwords must not fill the disk."""
        left = self._lines.take()
        if left > 0:
            log.info("login refused", reason=reason, **who)
        elif left == 0:
            log.warning("many logins refused; see kproxy_client_logins_total", reason=reason, **who)

    async def _password(self, check: PasswordCheck, address: str, has_gone: Callable[[], bool]) -> Verdict:
        verifier, known = self.policy.credentials().for_plain(check.name)
        seal = hmac.digest(self._seal_key, check.password.encode(), "sha256")
        if known and hmac.compare_digest(self._sealed.get(verifier, b""), seal):
            return Accepted(check.name)
        # of a user that does not exist, too: else the time would tell
        fits = await self._is_of(verifier, check.password, address, has_gone)
        if known and fits:
            if len(self._sealed) >= _MOST_SEALED:
                self._sealed.clear()
            self._sealed[verifier] = seal
            return Accepted(check.name)
        return Refused(f"wrong password of {check.name!r}" if known else "no such user")

    async def _is_of(self, verifier: Verifier, password: str, address: str, has_gone: Callable[[], bool]) -> bool:
        """Computes a hash; of those that wait, one of each address is next in line for the processors.

        False without a hash for a client that has disconnected while it waited.
        """
        queue = self._queues.setdefault(address, _Queue())
        queue.waiting += 1
        try:
            async with queue.turn:
                if has_gone():
                    return False
                return await trio.to_thread.run_sync(verifier.is_of, password, limiter=self._hashing)
        finally:
            queue.waiting -= 1
            if not queue.waiting:
                del self._queues[address]


class _Queue:
    """The clients of one address that wait for the hash of a password."""

    def __init__(self) -> None:
        self.turn = trio.CapacityLimiter(_HASHES_OF_AN_ADDRESS)
        self.waiting = 0


def open_desk(config: Config) -> LoginWorker:
    """For clients that log in at kproxy. StartupError."""
    plain = set(config.sasl_enabled_mechanisms) & {"PLAIN", _BEARER}
    if plain and config.ssl_certificate_location is None and not config.listen.is_loopback:
        log.warning("passwords or tokens are sent without TLS", mechanisms=sorted(plain))
    return LoginWorker(config)


def _credential_file(config: ClientLoginOptions) -> CredentialFile | None:
    if config.sasl_credentials_location is None:
        return None
    try:
        return CredentialFile(config.sasl_credentials_location, trio.current_time)
    except CredentialError as error:
        raise StartupError(f"sasl.credentials.location: {error}", ExitCode.USAGE) from None


def _token_checker(config: ClientLoginOptions) -> "TokenChecker":
    try:
        from kproxy.net.client_login.token_checker import TokenChecker, TokenRules
    except ImportError:
        hint = install_command("oauth")
        raise StartupError(f"OAUTHBEARER in sasl.enabled.mechanisms needs PyJWT: {hint}", ExitCode.USAGE) from None
    from kproxy.net.client_login.token_keys import TokenKeys

    rules = TokenRules(
        config.sasl_oauthbearer_expected_audience,
        config.sasl_oauthbearer_expected_issuer or None,
        config.sasl_oauthbearer_clock_skew_seconds,
        config.sasl_oauthbearer_sub_claim_name,
        config.sasl_oauthbearer_scope_claim_name,
        config.sasl_oauthbearer_expected_scope,
    )
    url = config.sasl_oauthbearer_jwks_endpoint_url or ""
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        log.warning("token keys are fetched over plain HTTP: a forged response lets anybody log in; use https", url=url)
    return TokenChecker(TokenKeys(url, config.sasl_oauthbearer_jwks_endpoint_refresh_ms), rules)
