"""Which names a topic can have."""

import re
from typing import Final

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LEGAL_BYTES: Final = re.compile(rb"[a-zA-Z0-9._-]{1,249}")


def is_legal_topic(name: str | bytes) -> bool:
    """Whether Kafka's ``Topic.validate`` accepts a name, given as text or as the bytes of a request."""
    if isinstance(name, bytes):
        return name not in (b".", b"..") and _LEGAL_BYTES.fullmatch(name) is not None
    return name not in (".", "..") and _LEGAL.fullmatch(name) is not None
