"""Generated decoders, each in every version; headers of requests and responses; the cutting of a stream into frames."""

import importlib
import pkgutil
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from random import Random
from typing import Final

from kproxy.budget import standalone
from kproxy.codec import _generated
from kproxy.codec.frame import FrameSplitter
from kproxy.codec.header import (
    decode_request_header,
    encode_request,
    encode_response,
    response_header_size,
)
from kproxy.codec.messages import Message
from kproxy.codec.metadata_rows import MetadataBrokers
from kproxy.errors import RemoteProtocolError
from verification.fuzz.choices import Choices
from verification.fuzz.target import LONGEST, Bound, Target, expect
from verification.hostile.samples import MESSAGES, Samples

_TAG_BYTES: Final = 2
_VARIANTS: Final = 2
_MOST_OTHER: Final = 100


def _tag(name: str) -> int:
    """What a message is chosen by: it does not depend on which others there are."""
    return zlib.crc32(name.encode()) >> 16


def _kinds() -> list[type[Message]]:
    modules = [
        importlib.import_module(f"{_generated.__name__}.{each.name}")
        for each in pkgutil.iter_modules(_generated.__path__)
    ]
    found = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    kinds = [each for each in found if issubclass(each, Message) and each is not Message]
    return sorted([*kinds, MetadataBrokers], key=lambda kind: (_tag(kind.__name__), kind.__name__))


KINDS: Final = _kinds()
"""All classes of messages, in the order of their tags."""
_TAGS: Final = [_tag(kind.__name__) for kind in KINDS]


def check_message(data: bytes) -> None:
    """Two bytes choose the message, one its version; what decodes must encode, and decode to the same again."""
    said = Choices(data)
    kind = KINDS[bisect_left(_TAGS, said.number(_TAG_BYTES)) % len(KINDS)]
    low, high = kind.MIN_VERSION, kind.MAX_VERSION
    version = said.number()
    version = version if low <= version <= high else low + version % (high - low + 1)
    body = said.rest()
    try:
        message = kind.decode(body, version, standalone())
    except RemoteProtocolError:
        return
    encoded = message.encode(version)
    again = kind.decode(encoded, version, standalone())
    expect(again.encode(version) == encoded, f"{kind.__name__} v{version} changes when it is written and read")
    expect(len(encoded) <= len(body), f"{kind.__name__} v{version} was read of fewer bytes than it is written in")


def _message_seeds() -> Iterator[bytes]:
    for seed in range(_VARIANTS):
        samples = Samples(Random(seed))
        for name, (_, table) in MESSAGES.items():
            low, high = table.versions
            for version in range(low, high + 1):
                message = samples.well_formed(name, version)
                start = _tag(type(message).__name__).to_bytes(_TAG_BYTES, "big") + bytes([version])
                yield (start + message.encode(version))[:LONGEST]


def check_frames(data: bytes) -> None:
    """A stream that arrives in pieces has the frames that it has as a whole; what the headers in them say."""
    said = Choices(data)
    sizes = [said.number() + 1 for _ in range(said.number() % 8)]
    most_other = _MOST_OTHER if said.number() % 2 else None
    stream = said.rest()
    whole, whole_refused = _cut(stream, [len(stream)], most_other)
    pieces, refused = _cut(stream, sizes or [1], most_other)
    # what arrives with a length that is refused is not answered
    same = pieces[: len(whole)] == whole if refused else pieces == whole
    expect(same and refused == whole_refused, "the frames of a stream depend on how it arrives")
    for frame in whole:
        _read_headers(memoryview(frame)[4:])


def _cut(stream: bytes, sizes: list[int], most_other: int | None) -> tuple[list[bytearray], bool]:
    """The frames of a stream that arrives in pieces of these sizes, and whether it was refused after them."""
    splitter, frames, pos, turn = FrameSplitter(LONGEST, most_other), list[bytearray](), 0, 0
    try:
        while pos < len(stream):
            data = memoryview(stream)[pos : pos + sizes[turn % len(sizes)]]
            turn += 1
            room = splitter.room() if turn % 2 else None
            if room is None:
                frames += splitter.feed(data)
            else:
                data = data[: len(room)]
                room[: len(data)] = data
                frame = splitter.filled(len(data))
                frames += [] if frame is None else [frame]
            pos += len(data)
            expect(splitter.held <= 2 * LONGEST, f"{splitter.held} bytes are held of a stream of {len(stream)}")
    except RemoteProtocolError:
        return frames, True
    return frames, False


def _read_headers(frame: memoryview) -> None:
    try:
        header = decode_request_header(frame)
    except RemoteProtocolError:
        return
    expect(0 < header.size <= len(frame), "a request's header ends after its frame")
    try:
        size = response_header_size(header.api_key, header.api_version, frame)
    except RemoteProtocolError:
        return
    expect(0 < size <= len(frame), "a response's header ends after its frame")


def _frame_seeds() -> Iterator[bytes]:
    samples = Samples(Random(0))
    for name, (_, table) in MESSAGES.items():
        if name.endswith(("Request", "Response")):
            for version in table.versions:
                message = samples.well_formed(name, version)
                if name.endswith("Request"):
                    frame = encode_request(message, version, 7, "me")
                else:
                    frame = encode_response(message, version, 7)
                yield (b"\x02\x03\x10\0" + frame + frame)[:LONGEST]


_WORDS: Final = (b"\xff\xff\xff\xff", b"\0\0\0\1", b"\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x80\x80\x80\x08")

MESSAGES_TARGET: Final = Target(
    "messages",
    check_message,
    _message_seeds,
    Bound(steps=10_000, steps_of_byte=300, memory=20_000, memory_of_byte=400),
    (
        "kproxy.codec._generated",
        "kproxy.codec.messages",
        "kproxy.codec.primitives",
        "kproxy.codec.primitive_writers",
        "kproxy.codec.metadata_rows",
    ),
    _WORDS,
)
FRAMES_TARGET: Final = Target(
    "frames",
    check_frames,
    _frame_seeds,
    Bound(steps=20_000, steps_of_byte=400, memory=50_000, memory_of_byte=300),
    ("kproxy.codec.frame", "kproxy.codec.header"),
    _WORDS,
)
