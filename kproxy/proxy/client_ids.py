"""Client ids as kproxy keeps them: of bounded length, whatever a client sends."""

from hashlib import sha256
from typing import Final

#: The longest client id that is kept as it is, in bytes of UTF-8. Kafka has no limit below 32,767.
LONGEST_CLIENT_ID: Final = 255
#: Of a longer one, the characters that are kept for people; a hash of all of it follows.
_KEPT: Final = 48
_HASH_DIGITS: Final = 32


def kept_client_id(client_id: str) -> str:
    """The client id by which a client is known in identities, quotas, rules, logs and at the broker.

    Two different ones stay different: a long one is its first characters and a hash of all of it.
    """
    if len(client_id) * 4 <= LONGEST_CLIENT_ID:
        return client_id
    data = client_id.encode("utf-8", "replace")
    if len(data) <= LONGEST_CLIENT_ID:
        return client_id
    return f"{client_id[:_KEPT]}~{sha256(data).hexdigest()[:_HASH_DIGITS]}"
