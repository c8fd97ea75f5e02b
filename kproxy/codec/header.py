"""Request and response headers, and which version of them goes with which request.

Request headers: 0 (ControlledShutdown 0 alone) has no client id, 1 adds it, 2 adds tagged fields and goes with the
flexible versions of a request (KIP-482). The client id stays a plain string in all. Response headers: 0 is the bare
correlation id, 1 adds tagged fields; ApiVersions answers with 0 always, since the asker may not know better (KIP-511).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING

from kproxy.codec.messages import APIS, ApiKey
from kproxy.codec.primitive_writers import write_nullable_string
from kproxy.codec.primitives import read_nullable_string, skip_tags
from kproxy.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from kproxy.codec.messages import Message
    from kproxy.codec.primitives import Buffer

_CONTROLLED_SHUTDOWN = 7
_start = Struct(">hhi")
_correlation_id = Struct(">i")
MAX_FRAME = 2**31 - 1


@dataclass(slots=True)
class RequestHeader:
    """The header of a request; ``size`` is its bytes, so the body starts there."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    size: int


def _is_flexible(api_key: int, version: int) -> bool:
    return api_key in APIS and version >= APIS[api_key][3]


def request_header_version(api_key: int, version: int) -> int:
    """The version (0, 1 or 2) of a request's header; of an unknown API key's 1, the only safe reading."""
    if api_key == _CONTROLLED_SHUTDOWN and version == 0:
        return 0
    return 2 if _is_flexible(api_key, version) else 1


def response_header_version(api_key: int, version: int) -> int:
    """The version (0 or 1) of a response's header."""
    return 1 if api_key != ApiKey.API_VERSIONS and _is_flexible(api_key, version) else 0


def decode_request_header(frame: Buffer) -> RequestHeader:
    """The header at the start of a frame without its length prefix; RemoteProtocolError if it is cut or damaged."""
    try:
        api_key, api_version, correlation_id = _start.unpack_from(frame)
        pos, client_id = _start.size, None
        header_version = request_header_version(api_key, api_version)
        if header_version:
            client_id, pos = read_nullable_string(frame, pos)
        if header_version == 2:
            pos = skip_tags(frame, pos)
    except (StructError, IndexError, UnicodeDecodeError) as e:
        raise RemoteProtocolError(f"request header is cut or damaged: {e}") from e
    if pos > len(frame):
        raise RemoteProtocolError("request header ends before its last field")
    return RequestHeader(api_key, api_version, correlation_id, client_id, pos)


def response_header_size(api_key: int, version: int, frame: Buffer) -> int:
    """Where the body starts in a response frame without its length prefix; RemoteProtocolError if it is cut."""
    pos = _correlation_id.size
    try:
        if response_header_version(api_key, version):
            pos = pos + 1 if not frame[pos] else skip_tags(frame, pos)
    except IndexError as e:
        raise RemoteProtocolError("response header is cut") from e
    if pos > len(frame):
        raise RemoteProtocolError("response header is cut")
    return pos


def encode_request(message: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole request frame: length prefix, header and body; LocalProtocolError if it cannot be said."""
    header_version = request_header_version(message.API_KEY, version)
    out = bytearray(4)
    try:
        out += _start.pack(message.API_KEY, version, correlation_id)
    except StructError as e:
        raise LocalProtocolError(f"request header cannot be written: {e}") from e
    _write_client_id(out, client_id)
    if header_version == 2:
        out.append(0)
    return _framed(message, version, out)


def encode_response(message: Message, version: int, correlation_id: int) -> bytes:
    """A whole response frame: length prefix, header and body; LocalProtocolError if it cannot be said."""
    out = bytearray(4)
    try:
        out += _correlation_id.pack(correlation_id)
    except StructError as e:
        raise LocalProtocolError(f"response header cannot be written: {e}") from e
    if response_header_version(message.API_KEY, version):
        out.append(0)
    return _framed(message, version, out)


def _write_client_id(out: bytearray, client_id: str | None) -> None:
    try:
        write_nullable_string(out, client_id)
    except UnicodeEncodeError as e:
        raise LocalProtocolError(f"client id cannot be written: {e}") from e


def _framed(message: Message, version: int, out: bytearray) -> bytes:
    message.encode_into(out, version)
    if len(out) - 4 > MAX_FRAME:
        raise LocalProtocolError(f"frame of {len(out) - 4} bytes")
    _correlation_id.pack_into(out, 0, len(out) - 4)
    return bytes(out)
