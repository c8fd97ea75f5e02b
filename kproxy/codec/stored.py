"""What kproxy stores in logs: a version (int16), then a message in the grammar of the wire.

Kafka's own ``__consumer_offsets`` and ``__transaction_state`` begin keys and values so, too.
"""

from struct import Struct
from typing import Final, TypeVar

from kproxy.budget import unbounded
from kproxy.codec.messages import Message
from kproxy.errors import RemoteProtocolError

_VERSION: Final = Struct(">h")

M = TypeVar("M", bound=Message)


class UnknownRecord(RemoteProtocolError):
    """A newer kproxy wrote this: a reader that does not understand it may neither decide by it nor overwrite it."""


def encode_stored(message: Message, version: int) -> bytes:
    """The bytes to store; LocalProtocolError if the message can't be said."""
    return _VERSION.pack(version) + message.encode(version)


def decode_stored(kind: type[M], data: bytes | None, newest: int | None = None) -> M:
    """What was stored at a version up to ``newest``, or any that there is.

    UnknownRecord; RemoteProtocolError if it is damaged.
    """
    newest = kind.MAX_VERSION if newest is None else newest
    if data is None or len(data) < _VERSION.size:
        raise RemoteProtocolError("record without a version")
    version: int = _VERSION.unpack_from(data)[0]
    if not 0 <= version <= newest:
        raise UnknownRecord(f"record of version {version}, newer than {newest}")
    return kind.decode(data, version, unbounded(), _VERSION.size)  # kproxy wrote it
