"""kproxy's credentials at the brokers: a name and a password, or a token; read, or requested, for each login."""

import secrets
from collections.abc import Mapping
from typing import Protocol

from kproxy.config.secrets import SecretLocation
from kproxy.net.broker_sasl.token_sources import TokenSource
from kproxy.proxy.broker_login.broker_mechanisms import Bearer, Mechanism, Plain
from kproxy.proxy.broker_login.scram_client import SaltedPassword, Scram


class Credentials(Protocol):
    """One identity at the brokers."""

    @property
    def who(self) -> str:
        """Whose login it is, for errors."""

    @property
    def check(self) -> str:
        """What to check if it is refused."""

    async def mechanism(self) -> Mechanism:
        """The client's side of a new login. OSError: a secret or a token is unavailable."""


class Password:
    """PLAIN or SCRAM."""

    def __init__(self, mechanism: str, username: str, location: SecretLocation, name: str, where: str) -> None:
        """``name`` and ``where``: how people know the places of name and password, for errors."""
        self._mechanism = mechanism
        self._username = username
        self._location = location
        self._where = where
        self._salted = SaltedPassword()
        self.who = repr(username)
        self.check = f"{name} and {where} = '{location}'"

    async def mechanism(self) -> Mechanism:
        password = self.password()
        if self._mechanism == Plain.mechanism:
            return Plain(self._username, password)
        return Scram(self._mechanism, self._username, password, secrets.token_urlsafe(24), self._salted)

    def password(self) -> str:
        """The password as it is now. OSError."""
        try:
            return self._location.read()
        except OSError as error:
            raise OSError(f"{self._where} = {error}") from None


class Token:
    """OAUTHBEARER."""

    def __init__(self, source: TokenSource, extensions: Mapping[str, str]) -> None:
        """``extensions`` go with each token."""
        self._source = source
        self._extensions = extensions
        self.who = "the token"
        self.check = source.where

    async def mechanism(self) -> Mechanism:
        return Bearer(await self._source.token(), self._extensions)
