"""The validity of certificates in a PEM file: the one field of them that Python's ``ssl`` shows of peers only.

A certificate is DER (X.690); RFC 5280, section 4.1, has its fields.
"""

import re
from binascii import Error, a2b_base64
from datetime import UTC, datetime
from typing import Final, NamedTuple

from kproxy.proxy.certificate_stats import Validity

_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----([^-]+)-----END CERTIFICATE-----")
#: Tags of DER.
_VERSION, _UTC_TIME = 0xA0, 0x17
#: The fields before the validity: serial number, algorithm, issuer.
_BEFORE: Final = 3


def validity_of(pem: bytes) -> Validity | None:
    """The validity of the certificate that ends first; None if there is none that can be read."""
    found = []
    for text in _PEM.findall(pem):
        try:
            found.append(_validity(a2b_base64(text)))
        except (Error, IndexError, ValueError):
            continue
    return min(found, key=lambda one: one.not_after, default=None)


class _Element(NamedTuple):
    tag: int
    start: int
    end: int


def _element(der: bytes, at: int) -> _Element:
    """The element at a place. IndexError if it does not end."""
    size, start = der[at + 1], at + 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(der[at + 2 : start], "big")
    if start + size > len(der):
        raise IndexError("it does not end")
    return _Element(der[at], start, start + size)


def _validity(der: bytes) -> Validity:
    certificate = _element(der, 0)
    signed = _element(der, certificate.start)
    field = _element(der, signed.start)
    if field.tag == _VERSION:
        field = _element(der, field.end)
    for _ in range(_BEFORE):
        field = _element(der, field.end)
    first = _element(der, field.start)
    return Validity(_time(der, first), _time(der, _element(der, first.end)))


def _time(der: bytes, element: _Element) -> float:
    """Seconds since the epoch. ValueError if it is no time."""
    text = der[element.start : element.end].decode("ascii")
    if element.tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
