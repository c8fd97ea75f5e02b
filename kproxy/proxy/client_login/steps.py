"""The results of a login's steps."""

from typing import NamedTuple, Protocol, TypeAlias


class Challenge(NamedTuple):
    """Say this to the client and wait for its next token."""

    token: bytes


class Accepted(NamedTuple):
    """The client has proven its identity."""

    name: str
    #: The last thing to say to it.
    token: bytes = b""
    #: When what it has shown loses its worth, in seconds since the epoch; None: never.
    expires_at: float | None = None


class Refused(NamedTuple):
    """The client is not let in."""

    #: For kproxy's own log, never for the client: it may tell which users there are.
    reason: str
    #: The message for the client; None: only that its credentials are wrong.
    message: str | None = None


class PasswordCheck(NamedTuple):
    """To be found out elsewhere, since it takes long on purpose: whether this is the user's password."""

    name: str
    password: str


class TokenCheck(NamedTuple):
    """To be verified elsewhere: the issuer of this token, its user, and whether it is still valid."""

    token: str
    #: For whom the client says it acts; empty: for the one whom the token names.
    acts_for: str


Check: TypeAlias = PasswordCheck | TokenCheck
Verdict: TypeAlias = Accepted | Refused
Step: TypeAlias = Challenge | Verdict | Check


class Exchange(Protocol):
    """The server's side of one mechanism, for one login."""

    def step(self, token: bytes) -> Step:
        """What comes of the client's next token."""

    def checked(self, verdict: Verdict) -> Challenge | Verdict:
        """What comes of a check that ``step`` asked for."""
