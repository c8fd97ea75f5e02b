"""Does for clients that log in what takes time: computes hashes, asks for keys, lets the refused wait."""

import hmac
import secrets
from typing import TYPE_CHECKING, Final

import structlog
import trio

from kproxy.config import Config, ExitCode, StartupError
from kproxy.net.client_login.credential_file import CredentialError, CredentialFile
from kproxy.proxy.client_login.credentials import DECOY_BYTES, Credentials, Verifier
from kproxy.proxy.client_login.gate import LoginGate, LoginPolicy
from kproxy.proxy.client_login.steps import Accepted, PasswordCheck, Refused, TokenCheck, Verdict

if TYPE_CHECKING:
    from kproxy.net.client_login.tokens import TokenChecker

log = structlog.get_logger("kproxy.login")

#: Hashes of passwords that are computed at a time: clients that reconnect all at once must not take all processors.
_HASHES_AT_ONCE: Final = 2
#: So many refusals are logged within such a time.
_LOGGED_AT_MOST: Final = 20
_LOG_SECONDS: Final = 10.0
_NONCE_BYTES: Final = 24
_SEAL_KEY_BYTES: Final = 32
_MOST_SEALED: Final = 10_000
_BEARER: Final = "OAUTHBEARER"


class LoginDesk:
    """Serves the logins of all connections."""

    def __init__(self, config: Config) -> None:
        """StartupError if a file, or what a mechanism needs, is missing. Inside trio."""
        self._delay_seconds = config.connection_failed_authentication_delay_ms / 1000
        self._hashing = trio.CapacityLimiter(_HASHES_AT_ONCE)
        #: By verifier the password that it was seen to fit, under a key that dies with this process: when a thousand
        #: clients come back at once, each hash is computed once. Guesses cost as much as ever.
        self._sealed: dict[Verifier, bytes] = {}
        self._seal_key = secrets.token_bytes(_SEAL_KEY_BYTES)
        self._log_until, self._left_to_log = -float("inf"), 0
        self._tokens = _token_checker(config) if _BEARER in config.sasl_enabled_mechanisms else None
        nobody = Credentials(secrets.token_bytes(DECOY_BYTES), {})
        file = _credential_file(config)
        self.policy = LoginPolicy(
            config.sasl_enabled_mechanisms,
            config.connections_max_reauth_ms,
            file.current if file is not None else lambda: nobody,
            lambda: secrets.token_urlsafe(_NONCE_BYTES),
        )

    async def serve(self, gate: LoginGate, client_id: str, peer: str) -> None:
        """Does what a gate waits for, so that the frame can be offered again."""
        if gate.refused is not None:
            self._log(gate.refused.reason, mechanism=gate.mechanism, client_id=client_id, peer=peer)
            await trio.sleep(self._delay_seconds)
        elif isinstance(gate.check, PasswordCheck):
            gate.checked(await self._password(gate.check))
        elif isinstance(gate.check, TokenCheck) and self._tokens is not None:
            gate.checked(await self._tokens.check(gate.check))

    def _log(self, reason: str, **who: str) -> None:
        """Tells of a refusal, but not of each when there are many: whoever guesses must not fill the disk."""
        now = trio.current_time()
        if now >= self._log_until:
            self._log_until, self._left_to_log = now + _LOG_SECONDS, _LOGGED_AT_MOST
        self._left_to_log -= 1
        if self._left_to_log > 0:
            log.info("login refused", reason=reason, **who)
        elif self._left_to_log == 0:
            log.warning("many logins refused; see kproxy_client_logins_total", reason=reason, **who)

    async def _password(self, check: PasswordCheck) -> Verdict:
        verifier, known = self.policy.credentials().for_plain(check.name)
        seal = hmac.digest(self._seal_key, check.password.encode(), "sha256")
        if known and hmac.compare_digest(self._sealed.get(verifier, b""), seal):
            return Accepted(check.name)
        # of a user that does not exist, too: else the time would tell
        fits = await trio.to_thread.run_sync(verifier.is_of, check.password, limiter=self._hashing)
        if known and fits:
            if len(self._sealed) >= _MOST_SEALED:
                self._sealed.clear()
            self._sealed[verifier] = seal
            return Accepted(check.name)
        return Refused(f"wrong password of {check.name!r}" if known else "no such user")


def open_desk(config: Config) -> LoginDesk | None:
    """None if clients do not log in at kproxy. StartupError."""
    if not config.sasl_enabled_mechanisms:
        return None
    plain = set(config.sasl_enabled_mechanisms) & {"PLAIN", _BEARER}
    if plain and config.ssl_certificate_location is None and not config.listen.is_loopback:
        log.warning("passwords or tokens go over the network without TLS", mechanisms=sorted(plain))
    return LoginDesk(config)


def _credential_file(config: Config) -> CredentialFile | None:
    if config.sasl_credentials_location is None:
        return None
    try:
        return CredentialFile(config.sasl_credentials_location, trio.current_time)
    except CredentialError as error:
        raise StartupError(f"sasl.credentials.location: {error}", ExitCode.USAGE) from None


def _token_checker(config: Config) -> "TokenChecker":
    try:
        from kproxy.net.client_login.tokens import TokenChecker, TokenRules
    except ImportError:
        hint = "pip install 'kproxy[oauth]'"
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
    return TokenChecker(TokenKeys(url, config.sasl_oauthbearer_jwks_endpoint_refresh_ms), rules)
