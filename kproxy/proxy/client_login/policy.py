"""How clients log in at kproxy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kproxy.proxy.client_login.stored_credentials import Credentials

#: The longest request of a client that has not logged in, as Kafka's sasl.server.max.receive.size is by default.
LARGEST_BEFORE_LOGIN: Final = 524_288


@dataclass(frozen=True, slots=True)
class LoginPolicy:
    """How clients log in."""

    #: The mechanisms that are enabled, at least one.
    mechanisms: Sequence[str]
    #: After so long a client must log in again (KIP-368), in ms; 0: as long as its credentials last.
    max_reauth_ms: int
    credentials: Callable[[], Credentials]
    #: Gives a text that was never given before and can't be guessed.
    nonce: Callable[[], str]
