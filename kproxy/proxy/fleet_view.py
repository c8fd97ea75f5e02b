"""The fleet as its announcements show it: its instances, their versions and problems, and its legacy clients."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from kproxy.codec.records import Record
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.announcements import MOST_BYTES, Announcement, decode_key, decode_value
from kproxy.proxy.facts import MOST_ROWS, FleetClient, FleetFact, InstanceFact, utc

#: An instance that has left out so many announcements, and was silent for ``LISTED_MS``, is not listed any more.
MISSED: Final = 3
#: So long a silent instance is listed, and a restart without an orderly end counts as trouble.
LISTED_MS: Final = 600_000
#: Beyond its interval an announcement may be late by half of it, and by so much.
_LATE_MS: Final = 2_000
#: Instances that are kept at most, and what their entries may take together.
_MOST_INSTANCES: Final = 20_000
_MOST_BYTES: Final = 32 << 20
#: Of one instance; more are not counted.
_MOST_RESTARTS: Final = 100
#: Clocks of brokers and of this host may differ by less.
_CLOCKS_AGREE_MS: Final = 300_000
_VERSION: Final = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})")
#: Why an entry is not used; expired: its instance did not announce itself in time.
IGNORED: Final = ("damaged", "too_long", "too_many", "future", "expired")
_SHARED: Final = "instance.id is used by two processes: give each its own"


class _Seen:
    """The newest announcement of an instance."""

    __slots__ = ("announcement", "at_ms", "restarts", "shared", "size")

    def __init__(self, announcement: Announcement, at_ms: int, size: int, former: "_Seen | None") -> None:
        self.announcement = announcement
        self.at_ms = at_ms
        self.size = size
        #: Two processes announce themselves by turns.
        self.shared = False
        #: When it was started again without having left, ms since 1970; not those that brought another version.
        self.restarts: list[int] = []
        if former is not None:
            began, before = announcement.started_ms, former.announcement
            # A restarted process began later than the one before it; two that live at once take turns.
            self.shared = former.shared or began < before.started_ms
            crashed = began > before.started_ms and announcement.version == before.version
            self.restarts = [*former.restarts, began][-_MOST_RESTARTS:] if crashed else former.restarts


class FleetView:
    """Reads announcements in the order of the log; of each instance the last one counts."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._size = 0
        #: Entries that are no announcements, of a newer kproxy, or more than are kept, by reason.
        self.ignored = dict.fromkeys(IGNORED, 0)
        self.damaged = 0

    def __len__(self) -> int:
        """How many instances are known, expired ones included."""
        return len(self._seen)

    def apply(self, records: Iterable[Record]) -> None:
        """Takes the next entries of the log."""
        for record in records:
            if max(len(record.key or b""), len(record.value or b"")) > MOST_BYTES:
                self.ignored["too_long"] += 1
                continue
            try:
                self.ignored["too_many"] += not self._take(record)
            except RemoteProtocolError:
                self.damaged += 1

    def _take(self, record: Record) -> bool:
        """False if there are too many. RemoteProtocolError: it is no announcement."""
        instance_id = decode_key(record.key)
        if record.value is None:
            former = self._seen.pop(instance_id, None)
            self._size -= 0 if former is None else former.size
            return True
        made = decode_value(instance_id, record.value)
        size = len(record.key or b"") + len(record.value)
        former = self._seen.get(instance_id)
        grown = self._size + size - (0 if former is None else former.size)
        if grown > _MOST_BYTES or (former is None and len(self._seen) >= _MOST_INSTANCES):
            return False
        self._seen[instance_id] = _Seen(made, record.timestamp, size, former)
        self._size = grown
        return True

    def fleet(self, now_ms: int, *, announces: bool, incomplete: bool) -> FleetFact:
        """The fleet at a moment, without those that have been silent for long.

        ``announces``: whether the instance that asks does so itself. ``incomplete``: not all could be read.
        """
        alive = [seen for seen in self._seen.values() if _is_alive(seen, now_ms)]
        self.ignored["damaged"] = self.damaged
        self.ignored["future"] = sum(seen.at_ms > now_ms + _CLOCKS_AGREE_MS for seen in self._seen.values())
        self.ignored["expired"] = len(self._seen) - len(alive) - self.ignored["future"]
        newest = max((version for seen in alive if (version := _version(seen.announcement)) is not None), default=None)
        rows = [_row(seen, newest, now_ms) for seen in alive]
        # In trouble first, then old.
        rows.sort(key=lambda row: (not row.problems, not row.old, row.instance_id))
        clients = _clients(seen.announcement for seen in alive)
        return FleetFact(
            now_ms=now_ms,
            announces=announces,
            incomplete=incomplete,
            ignored=sum(self.ignored.values()) - self.ignored["expired"],
            newest_version="" if newest is None else ".".join(map(str, newest)),
            total=len(rows),
            in_trouble=sum(bool(row.problems) for row in rows),
            old=sum(row.old for row in rows),
            connections=sum(seen.announcement.connections for seen in alive if not _is_silent(seen, now_ms)),
            instances=rows[:MOST_ROWS],
            legacy_total=len(clients),
            legacy_clients=clients[:MOST_ROWS],
        )


def _is_alive(seen: _Seen, now_ms: int) -> bool:
    listed_ms = max(MISSED * seen.announcement.interval_ms, LISTED_MS)
    return now_ms - listed_ms < seen.at_ms <= now_ms + _CLOCKS_AGREE_MS


def _is_silent(seen: _Seen, now_ms: int) -> bool:
    interval_ms = seen.announcement.interval_ms
    return now_ms - seen.at_ms > interval_ms + interval_ms // 2 + _LATE_MS


def _problems(seen: _Seen, now_ms: int) -> Iterator[str]:
    """The problems of an instance: those that the others see, and those that it reported itself."""
    if _is_silent(seen, now_ms):
        every = f"{seen.announcement.interval_ms / 1000:g} s"
        yield f"silent since {utc(seen.at_ms / 1000)}, and due every {every}: killed, stopped, or without brokers"
    if seen.shared:
        yield _SHARED
    elif recent := [at for at in seen.restarts if at > now_ms - LISTED_MS]:
        last = utc(recent[-1] / 1000)
        often = f"at {last}" if len(recent) == 1 else f"{len(recent)} times, the last time at {last},"
        yield f"restarted {often} without leaving in good order"
    yield from seen.announcement.problems


def _version(announcement: Announcement) -> tuple[int, int, int] | None:
    """Of a release, comparable; None for what is none."""
    found = _VERSION.match(announcement.version)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def _row(seen: _Seen, newest: tuple[int, int, int] | None, now_ms: int) -> InstanceFact:
    made, version = seen.announcement, _version(seen.announcement)
    return InstanceFact(
        instance_id=made.instance_id,
        version=made.version,
        old=version is not None and newest is not None and version < newest,
        host=made.host,
        listen=made.listen,
        http=made.http,
        started_ms=made.started_ms,
        announced_ms=max(seen.at_ms, 0),
        connections=made.connections,
        legacy_total=made.legacy_total,
        problems=list(_problems(seen, now_ms)),
    )


def _clients(announcements: Iterable[Announcement]) -> list[FleetClient]:
    """The legacy clients of all instances by client.id and software, the busiest first."""
    found: dict[tuple[str, str], FleetClient] = {}
    for made in announcements:
        for row in made.legacy_clients:
            key = row.client_id, row.software
            known = found.get(key, FleetClient(*key, 0, 0, []))
            found[key] = FleetClient(
                *key,
                known.requests + row.requests,
                known.instances + 1,
                sorted({*known.removed, *row.removed}),
            )
    return sorted(found.values(), key=lambda row: (-row.requests, row.client_id, row.software))
