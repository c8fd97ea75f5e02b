"""Tokens for OAUTHBEARER: read from a place where another program renews them, or requested and renewed here."""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

import structlog
import trio

from kproxy.config.secrets import SecretLocation

log = structlog.get_logger("kproxy.upstream")

#: A new token is fetched after this share of the old one's life: logins are renewed later than that.
_FRESH: Final = 0.7
#: A token that expires within this time is not used.
_MARGIN_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 5.0
_TIMEOUT_SECONDS: Final = 10.0
#: The lifetime of a token whose issuer does not name one.
DEFAULT_LIFETIME_SECONDS: Final = 300.0


class TokenSource(Protocol):
    """Gives tokens."""

    @property
    def where(self) -> str:
        """What to check if a broker refuses them."""

    async def token(self) -> str:
        """A token for a login now. OSError: none is available."""

    async def run(self) -> None:
        """Renews the token before it expires; runs until cancelled."""


class StoredToken:
    """A token that another program renews."""

    def __init__(self, location: SecretLocation) -> None:
        self._location = location
        self.where = f"upstream.sasl.oauthbearer.token.location = '{location}'"

    async def token(self) -> str:
        try:
            return self._location.read().strip()
        except OSError as error:
            raise OSError(f"upstream.sasl.oauthbearer.token.location = {error}") from None

    async def run(self) -> None:
        """Nothing to do."""


class Issued(NamedTuple):
    """A token, and for how many seconds it is valid."""

    token: str
    lifetime: float


class IssuedTokens:
    """Requests a token, shares it between all logins, and requests the next one before it expires."""

    def __init__(self, ask: Callable[[], Awaitable[Issued]], where: str) -> None:
        """``ask`` raises OSError. ``where``: what to look at if a broker does not take the tokens."""
        self._ask = ask
        self.where = where
        self._issued: Issued | None = None
        self._since = 0.0
        self._asking = trio.Lock()

    async def token(self) -> str:
        async with self._asking:
            if self._issued is None or trio.current_time() > self._since + self._issued.lifetime - _MARGIN_SECONDS:
                await self._renew()
            assert self._issued is not None
            return self._issued.token

    async def run(self) -> None:
        """As ``TokenSource``: logins then need not wait for it."""
        reported = False
        while True:
            try:
                async with self._asking:
                    await self._renew()
            except OSError as error:
                if not reported:
                    log.warning("no new token for the brokers; retrying", reason=str(error))
                reported = True
                await trio.sleep(_PAUSE_SECONDS)
                continue
            reported = False
            assert self._issued is not None
            await trio.sleep(max(1.0, self._issued.lifetime * _FRESH))

    async def _renew(self) -> None:
        began = trio.current_time()
        try:
            with trio.fail_after(_TIMEOUT_SECONDS):
                issued = await self._ask()
        except trio.TooSlowError:
            raise OSError(f"no token within {_TIMEOUT_SECONDS:.0f} s: see {self.where}") from None
        self._issued, self._since = issued, began
