"""How an instance announces itself to the others of its fleet: entries of the compacted topic ``__kproxy_fleet``."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kproxy.codec._generated.fleet_announcement import FleetAnnouncement, FleetAnnouncementLegacyClient
from kproxy.codec._generated.fleet_announcement_key import FleetAnnouncementKey
from kproxy.codec.stored import decode_stored, encode_stored
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.facts import LegacyClient, Status
from kproxy.proxy.troubles import trouble_text

#: Of one entry; what is longer was not written by kproxy.
MOST_BYTES: Final = 8192
#: The longest time between two announcements, ms.
LONGEST_INTERVAL_MS: Final = 600_000
_MOST_LEGACY: Final = 20
_MOST_REMOVED: Final = 10
_MOST_PROBLEMS: Final = 8
_LONGEST_TEXT: Final = 250
_VERSION: Final = 0


class Announcement(NamedTuple):
    """What one instance says of itself."""

    instance_id: str
    version: str
    host: str
    #: Where clients find it.
    listen: str
    #: Of the status page; empty if there is none.
    http: str
    started_ms: int
    #: Until the next announcement, ms.
    interval_ms: int
    connections: int
    #: What is wrong there, in words.
    problems: Sequence[str]
    #: Clients that Kafka 4 would refuse; the busiest are listed.
    legacy_total: int
    legacy_clients: Sequence[LegacyClient]


def announcement_of(status: Status, *, host: str, listen: str, http: str, interval_ms: int) -> Announcement:
    """What the instance with this status announces; ``host`` is the name of its machine, the others as the fields."""
    return Announcement(
        instance_id=status.instance_id,
        version=status.version,
        host=host,
        listen=listen,
        http=http,
        started_ms=status.started_ms,
        interval_ms=interval_ms,
        connections=status.connections,
        problems=[trouble_text(trouble) for trouble in status.troubles],
        legacy_total=status.legacy_total,
        legacy_clients=status.legacy_clients,
    )


def encode_key(instance_id: str) -> bytes:
    """The key of an instance's entry."""
    return encode_stored(FleetAnnouncementKey(instance_id), _VERSION)


def encode_value(announcement: Announcement) -> bytes:
    """The value of an entry, of ``MOST_BYTES`` at most: texts are cut, and legacy clients left out."""
    legacy = [
        FleetAnnouncementLegacyClient(
            _cut(row.client_id), _cut(row.software), row.requests, [_cut(word) for word in row.removed[:_MOST_REMOVED]]
        )
        for row in announcement.legacy_clients[:_MOST_LEGACY]
    ]
    while True:
        value = FleetAnnouncement(
            _cut(announcement.version),
            _cut(announcement.host),
            _cut(announcement.listen),
            _cut(announcement.http),
            announcement.started_ms,
            announcement.interval_ms,
            announcement.connections,
            [_cut(text) for text in announcement.problems[:_MOST_PROBLEMS]],
            announcement.legacy_total,
            legacy,
        )
        encoded = encode_stored(value, _VERSION)
        if len(encoded) <= MOST_BYTES:
            return encoded
        legacy.pop()


def _cut(text: str) -> str:
    return text.encode()[:_LONGEST_TEXT].decode(errors="ignore")


def decode_key(data: bytes | None) -> str:
    """The instance of an entry. RemoteProtocolError if it is damaged or too long."""
    if data is None or len(data) > MOST_BYTES:
        raise RemoteProtocolError("no key of an announcement")
    instance_id: str = decode_stored(FleetAnnouncementKey, data, _VERSION).instance_id
    return instance_id


def decode_value(instance_id: str, data: bytes) -> Announcement:
    """The announcement of an instance. RemoteProtocolError if it is damaged, too long, or no kproxy would say it."""
    if len(data) > MOST_BYTES:
        raise RemoteProtocolError("announcement too long")
    value = decode_stored(FleetAnnouncement, data, _VERSION)
    counts = (value.started_ms, value.connections, value.legacy_total, *(row.requests for row in value.legacy_clients))
    if not 0 < value.interval_ms <= LONGEST_INTERVAL_MS or min(counts) < 0:
        raise RemoteProtocolError("announcement with an impossible figure")
    return Announcement(
        instance_id=instance_id,
        version=value.kproxy_version,
        host=value.host,
        listen=value.listen,
        http=value.http,
        started_ms=value.started_ms,
        interval_ms=value.interval_ms,
        connections=value.connections,
        problems=value.problems,
        legacy_total=value.legacy_total,
        legacy_clients=[
            LegacyClient(row.client_id, row.software, row.requests, row.removed) for row in value.legacy_clients
        ],
    )
