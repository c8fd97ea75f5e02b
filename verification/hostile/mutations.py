"""Frames that a hostile client sends: at least half of them well-formed but for one field."""

from collections.abc import Iterator
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple

from kproxy.codec.header import encode_request
from kproxy.codec.messages import request_class
from kproxy.errors import LocalProtocolError
from verification.hostile.samples import TABLES, Samples


class Kind(StrEnum):
    """How a frame is wrong."""

    ONE_FIELD = "one field"
    DAMAGED = "damaged bytes"
    CUT = "cut short"
    LIES = "counts that lie"


#: Of ten frames, which kind each is.
_PLAN: Final = (*[Kind.ONE_FIELD] * 6, Kind.DAMAGED, Kind.DAMAGED, Kind.CUT, Kind.LIES)
_LIES: Final = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x80" * 6, b"\xff" * 4, b"\x7f\xff", b"\0\0\0\0")


class Frame(NamedTuple):
    """One request, length prefix included."""

    kind: Kind
    api_key: int
    version: int
    data: bytes


def requests() -> list[tuple[str, int, int]]:
    """The name, API key and version of every request that kproxy knows."""
    found = []
    for name, (_, table) in TABLES.items():
        low, high = table.versions
        found += [(name, table.api_key, version) for version in range(low, high + 1)]
    return found


def frames(seed: int, count: int) -> Iterator[Frame]:
    """So many frames over all APIs and versions, the same for the same seed."""
    random, known = Random(seed), requests()
    samples = Samples(random)
    for number in range(count):
        name, api_key, version = known[number % len(known)]
        kind = _PLAN[random.randrange(len(_PLAN))]
        client_id = random.choice([None, "hostile", "c" * 300])
        try:
            data = _frame(samples, kind, name, version, client_id)
        except LocalProtocolError:  # the wrong field can't be said in this version
            kind = Kind.DAMAGED
            data = encode_request(samples.well_formed(name, version), version, 7, client_id)
        yield Frame(kind, api_key, version, _mutated(random, kind, data))


def _frame(samples: Samples, kind: Kind, name: str, version: int, client_id: str | None) -> bytes:
    message = samples.one_field_wrong(name, version) if kind is Kind.ONE_FIELD else samples.well_formed(name, version)
    assert type(message) is request_class(message.API_KEY)
    return encode_request(message, version, 7, client_id)


def _mutated(random: Random, kind: Kind, data: bytes) -> bytes:
    body = bytearray(data[4:])
    if kind is Kind.DAMAGED:
        for _ in range(random.randint(1, 4)):
            body[random.randrange(len(body))] = random.randrange(256)
    elif kind is Kind.CUT:
        del body[random.randrange(len(body)) :]
    elif kind is Kind.LIES:
        lie, at = random.choice(_LIES), random.randrange(8, len(body) + 1)
        body[at : at + len(lie)] = lie
    return len(body).to_bytes(4, "big") + bytes(body)
