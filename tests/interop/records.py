"""Records for the interop tests: made to fit what a client can express, and compared after they came back."""

import base64
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from tests.interop.catalog import Abilities

PARTITIONS: Final = 3
PER_CODEC: Final = 42
Record = dict[str, Any]
_HEADERS: Final = (
    (),
    (("trace", b"\x00\xff"), ("empty", b"")),
    (("again", b"1"), ("again", b"2")),
    (("nothing", None), ("sort", b"1")),
)


def make(label: str, codec: str, can: Abilities, first_ms: int, value_bytes: int = 0) -> list[Record]:
    """Return `PER_CODEC` records, no two of them equal, over all partitions, in the form of the drivers' jobs.

    Values have up to a few hundred bytes, or `value_bytes` more, half of which no codec can compress.
    """
    chance = random.Random(f"{label} {codec}")
    more = [b"abc" * (7 * i % 90 + value_bytes // 6) + chance.randbytes(i + value_bytes // 2) for i in range(PER_CODEC)]
    return [_one(i, f"{label} {codec} {i}".encode(), more[i], can, first_ms) for i in range(PER_CODEC)]


def _one(index: int, name: bytes, more: bytes, can: Abilities, first_ms: int) -> Record:
    key: bytes | None = name
    value: bytes | None = b"%s \xc3\xa9\x00 %s" % (name, more)
    if index % 8 == 0 and can.null_key:
        key = None
    elif index % 8 == 1 and can.empty:
        key = b""
    elif index % 8 == 2 and can.null_value:
        value = None
    elif index % 8 == 3 and can.empty:
        value = b""
    headers = _HEADERS[index % (4 if can.null_headers else 3)] if can.headers else ()
    return {
        "p": index % PARTITIONS,
        "k": _text(key),
        "v": _text(value),
        "ts": first_ms + 1000 * index + index if can.timestamps else None,
        "h": [[name, _text(data)] for name, data in headers],
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def differences(sent: Sequence[Record], read: Iterable[Record], reader: Abilities, arrival_ms: tuple[int, int]) -> str:
    """Compare partition by partition, in order; return what is wrong, or an empty string.

    A record that was sent without a timestamp must have one of its arrival (between the two times, in ms).
    """
    if not reader.reads_empty:
        sent = [_without_empty(record) for record in sent]
    wanted, found = _by_partition(sent), _by_partition(read)
    problems: list[str] = []
    for partition in range(PARTITIONS):
        left, right = wanted[partition], found[partition]
        identities = [_identity(record) for record in left], [_identity(record) for record in right]
        if identities[0] != identities[1]:
            problems.append(_sequence_problem(partition, *identities))
            continue
        for one, other in zip(left, right, strict=True):
            problems += _field_problems(partition, one, other, reader, arrival_ms)
    return "\n".join(problems[:12])


def _without_empty(record: Record) -> Record:
    headers = [[name, data or None] for name, data in record["h"]]
    return {**record, "k": record["k"] or None, "v": record["v"] or None, "h": headers}


def _by_partition(records: Iterable[Record]) -> dict[int, list[Record]]:
    split: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        split[record["p"]].append(record)
    return split


def _identity(record: Record) -> str:
    return " = ".join(
        "null" if text is None else repr(base64.b64decode(text)[:40]) for text in (record["k"], record["v"])
    )


def _sequence_problem(partition: int, wanted: list[str], found: list[str]) -> str:
    missing = [identity for identity in wanted if identity not in found]
    extra = [identity for identity in found if identity not in wanted]
    twice = sorted({identity for identity in found if found.count(identity) > 1})
    order = "" if missing or extra or twice else ", out of order"
    return (
        f"partition {partition}: {len(wanted)} sent, {len(found)} read; missing {missing[:3]} ({len(missing)}), "
        f"unknown {extra[:3]} ({len(extra)}), more than once {twice[:3]} ({len(twice)}){order}"
    )


def _field_problems(
    partition: int, sent: Record, read: Record, reader: Abilities, arrival_ms: tuple[int, int]
) -> list[str]:
    where = f"partition {partition} offset {read['o']} ({_identity(sent)})"
    problems = [
        f"{where}: {name} {sent[name]!r} became {read[name]!r}" for name in ("k", "v") if sent[name] != read[name]
    ]
    if reader.reads_headers and sent["h"] != read["h"]:
        problems.append(f"{where}: headers {sent['h']!r} became {read['h']!r}")
    if reader.reads_timestamps:
        low, high = arrival_ms if sent["ts"] is None else (sent["ts"], sent["ts"])
        if read["ts"] is None or not low <= read["ts"] <= high:
            problems.append(f"{where}: timestamp {read['ts']}, expected {low} to {high}")
    return problems


def wrong_acks(sent: Sequence[Record], acked: Sequence[Sequence[int]], read: Iterable[Record]) -> str:
    """Check that each acknowledged offset is where the record really is; return what is wrong, or an empty string."""
    log = {(record["p"], record["o"]): _identity(record) for record in read}
    for record, (partition, offset) in zip(sent, acked, strict=True):
        if log.get((partition, offset)) != _identity(record):
            return (
                f"{_identity(record)} was acknowledged at {partition}-{offset}, where {log.get((partition, offset))} is"
            )
    return ""
