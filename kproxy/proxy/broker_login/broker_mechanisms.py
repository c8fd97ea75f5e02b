"""What is said after SaslHandshake, by mechanism: PLAIN (RFC 4616) and OAUTHBEARER (RFC 7628, KIP-255)."""

from collections.abc import Mapping
from typing import Protocol

_SEPARATOR = "\x01"


class LoginRefused(OSError):
    """The broker does not let kproxy in, or is not one to give a password to; the text says what to do."""


class Mechanism(Protocol):
    """The client's side of one login."""

    @property
    def mechanism(self) -> str:
        """Its name, as SaslHandshake has it."""

    def first(self) -> bytes:
        """What the client says first."""

    def next(self, challenge: bytes) -> bytes | None:
        """What it says then; None: there is nothing more to say. LoginRefused."""


class Plain:
    """Name and password as they are: only for TLS, or a network that is trusted."""

    mechanism = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        self._token = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def next(self, challenge: bytes) -> None:
        """The broker has nothing to ask."""


class Bearer:
    """A token that somebody else has issued."""

    mechanism = "OAUTHBEARER"

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        said = [f"auth=Bearer {token}", *(f"{name}={value}" for name, value in extensions.items())]
        self._token = f"n,,{_SEPARATOR}{_SEPARATOR.join(said)}{_SEPARATOR}{_SEPARATOR}".encode()
        self._refused = False

    def first(self) -> bytes:
        return self._token

    def next(self, challenge: bytes) -> bytes | None:
        """Nothing if it was taken; else the broker waits for a single byte before it says why not."""
        if not challenge:
            return None
        if self._refused:
            raise LoginRefused("the broker does not take the token")
        self._refused = True
        return _SEPARATOR.encode()
