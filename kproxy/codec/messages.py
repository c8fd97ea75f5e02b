"""The messages of the Kafka protocol: every request and response in every version that a client may send.

The classes live in ``kproxy.codec._generated``, one module for each API key, and are imported when first asked for.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from struct import error as StructError
from typing import TYPE_CHECKING, ClassVar, Self, cast

from kproxy.budget import unbounded
from kproxy.codec._generated.api import APIS, ApiKey
from kproxy.codec._generated.errors import ErrorCode
from kproxy.codec.protocol_struct import ProtocolStruct
from kproxy.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from kproxy.budget import RequestBudget
    from kproxy.codec.primitives import Buffer

__all__ = ["APIS", "ApiKey", "ErrorCode", "Message", "api_name", "decode_request", "request_class", "response_class"]


class Message(ProtocolStruct):
    """Base of the generated messages: mutable structs that hold the fields of all versions.

    A field that a version lacks has its default after ``decode``. Tagged fields that the tables do not know are kept
    raw in ``unknown_tags`` and written again. A ``records`` field is a view into the decoded buffer.
    """

    __slots__ = ()

    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]

    @classmethod
    def decode(cls, buf: Buffer, version: int, budget: RequestBudget, pos: int = 0, *, surplus: bool = False) -> Self:
        """Reads the message that fills ``buf`` from ``pos`` to its end; with ``surplus``, other bytes may follow it.

        Brokers ignore bytes after a request, and librdkafka 2 sends some after a Metadata request for all topics.

        Raises RemoteProtocolError if the bytes are not such a message, if bytes are left over without ``surplus``, or
        if the version does not exist; TooManyElements if it has more array elements and tagged fields than ``budget``,
        from which they are taken before they are decoded.
        """
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise RemoteProtocolError(f"{cls.__name__} has no version {version}")
        damage = None
        try:
            message, end = cls._read(buf, pos, version, budget)
        except (StructError, IndexError, UnicodeDecodeError) as e:
            damage = str(e)
        if damage is not None:  # raised here, so that the error does not keep the readers' frames, and what they read
            raise RemoteProtocolError(f"{cls.__name__} version {version} is cut or damaged: {damage}")
        if end > len(buf) or (end < len(buf) and not surplus):
            word = "ends before its last field" if end > len(buf) else f"has {len(buf) - end} bytes too many"
            raise RemoteProtocolError(f"{cls.__name__} version {version} {word}")
        return message

    def encode(self, version: int) -> bytes:
        """The message in ``version``, without any header.

        Raises LocalProtocolError if the version does not exist or cannot say what the fields hold.
        """
        out = bytearray()
        self.encode_into(out, version)
        return bytes(out)

    def encode_into(self, out: bytearray, version: int) -> None:
        """Appends what ``encode`` returns; after an error ``out`` holds an unfinished message."""
        if not self.MIN_VERSION <= version <= self.MAX_VERSION:
            raise LocalProtocolError(f"{type(self).__name__} has no version {version}")
        try:
            self._write(out, version)
        except (StructError, ValueError, OverflowError, TypeError, AttributeError) as e:
            raise LocalProtocolError(f"{type(self).__name__} version {version} cannot be written: {e}") from e

    @classmethod
    def _read(cls, buf: Buffer, pos: int, version: int, budget: RequestBudget) -> tuple[Self, int]:
        raise NotImplementedError

    def _write(self, out: bytearray, version: int) -> None:
        raise NotImplementedError


@cache
def _message_class(api_key: int, kind: str) -> type[Message]:
    name = APIS[api_key][0]
    module = import_module(f"kproxy.codec._generated.{ApiKey(api_key).name.lower()}")
    return cast("type[Message]", getattr(module, name + kind))


def api_name(api_key: int) -> str:
    """Kafka's name of an API, ``ListOffsets``; the number as text if it is not known."""
    return APIS[api_key][0] if api_key in APIS else str(api_key)


def request_class(api_key: int) -> type[Message]:
    """The class of an API key's requests; RemoteProtocolError if there is no such key."""
    if api_key not in APIS:
        raise RemoteProtocolError(f"unknown API key {api_key}")
    return _message_class(api_key, "Request")


def decode_request(api_key: int, body: Buffer, version: int, budget: RequestBudget) -> Message:
    """A client's request; bytes may follow it. A Produce request has been counted before, by ``walk_request``.

    Raises what ``Message.decode`` raises.
    """
    if api_key == ApiKey.PRODUCE:
        budget = unbounded()
    return request_class(api_key).decode(body, version, budget, surplus=True)


def response_class(api_key: int) -> type[Message]:
    """The class of an API key's responses; RemoteProtocolError if there is no such key."""
    if api_key not in APIS:
        raise RemoteProtocolError(f"unknown API key {api_key}")
    return _message_class(api_key, "Response")
