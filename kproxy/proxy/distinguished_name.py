"""The subject of a certificate as text, in the form that Kafka writes principals in (RFC 2253, Java's X500Principal).

A certificate has been verified before it comes here, so its DER is taken apart only as far as the subject.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
#: Fields of a TBSCertificate (RFC 5280, 4.1) that come before the subject: serial, signature, issuer, validity.
_BEFORE_SUBJECT: Final = 4
#: UTF8String, PrintableString, T61String, IA5String.
_STRINGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16})
#: Names of attribute types in RFC 2253; all others are written by number.
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')


class _Item(NamedTuple):
    """One value of DER: its tag, its content, and all of it."""

    tag: int
    content: memoryview
    whole: memoryview


def subject_of(certificate: bytes) -> str:
    """The subject of a DER certificate, most specific part first: ``CN=alice,OU=sales,O=Example``.

    ValueError if it is no certificate.
    """
    try:
        return _subject(memoryview(certificate))
    except (IndexError, StopIteration, ValueError):
        raise ValueError("no certificate") from None


def _subject(certificate: memoryview) -> str:
    (outer,) = _items(certificate)
    inner = next(_items(outer.content))
    fields = [item for item in _items(inner.content) if item.tag != _VERSION]
    if fields[_BEFORE_SUBJECT].tag != _SEQUENCE:
        raise ValueError
    parts = [
        "+".join(_pair(pair) for pair in _items(group.content)) for group in _items(fields[_BEFORE_SUBJECT].content)
    ]
    return ",".join(reversed(parts))


def _items(data: memoryview) -> Iterator[_Item]:
    """The concatenated values. ValueError if there is anything else."""
    while data:
        start, size = 2, data[1]
        if size & 0x80:
            start += size & 0x7F
            size = int.from_bytes(data[2:start], "big")
        if start + size > len(data):
            raise ValueError
        yield _Item(data[0], data[start : start + size], data[: start + size])
        data = data[start + size :]


def _pair(pair: _Item) -> str:
    kind, value = _items(pair.content)
    number = _number(kind.content)
    keyword = _KEYWORDS.get(number)
    text = None if keyword is None else _text(value)
    # what is no plain text is written as it is: two subjects must never look like one
    return f"{keyword or number}={_escape(text)}" if text is not None else f"{keyword or number}=#{value.whole.hex()}"


def _text(value: _Item) -> str | None:
    if value.tag not in _STRINGS:
        return None
    try:
        return str(value.content, "utf-8")
    except UnicodeDecodeError:
        return None


def _number(content: memoryview) -> str:
    """An object identifier with its dots (X.690, 8.19)."""
    arcs, arc = [], 0
    for byte in content:
        arc = arc << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))


def _escape(text: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in _ESCAPED else letter for letter in text).replace("\0", "\\00")
    body = escaped.strip(" ")
    if not body:
        return "\\ " * len(escaped)
    lead = len(escaped) - len(escaped.lstrip(" "))
    trail = len(escaped) - len(escaped.rstrip(" "))
    return "\\ " * lead + body + "\\ " * trail
