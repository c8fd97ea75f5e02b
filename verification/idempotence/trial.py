"""One trial: a client writes numbered records, something happens meanwhile, and the log is read."""

import re
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from kproxy.testing.kafka import RealKafka
from kproxy.testing.relay import Drop, Ending, Faults
from tests.interop import lossy, session
from tests.interop.catalog import Client
from tests.interop.lossy import Written
from tests.support.clients import run_driver
from verification.chaos.kproxy_process import log_problems
from verification.idempotence.acts import KINDS, Kind, Place, Site, meanwhile
from verification.idempotence.clients import is_plain
from verification.network.relayed import relayed_brokers, relayed_kproxy

_CHUNK: Final = 15
#: The share of a trial's records that come after its last trouble, as the number of such parts.
_LAST: Final = 10
_TIMEOUT_MS: Final = 120_000
_PATIENCE_S: Final = 200
_PAGE_S: Final = 60.0
_NUMBER: Final = re.compile(r"\d+")
_REPAIRS: Final = re.compile(r'^kproxy_sequence_repairs_total\{reason="(\w+)"\} (\S+)$', re.MULTILINE)
_LOST_RECORDS: Final = re.compile(r"^kproxy_lost_records_total (\S+)$", re.MULTILINE)
_LOST: Final = Drop(every=7, share=0.1, ending=Ending.FIN)


class Found(NamedTuple):
    """The trace of a client in the log; ``error``: the client gave up, and why."""

    copies: int
    #: Those that the client has reported as failed do not count.
    missing: int
    late: int
    #: Records that the client has reported as failed, where it continues then; ``reasons``: why.
    failed: int
    error: str
    seconds: float
    reasons: str = ""
    #: Errors about numbers that kproxy has looked into, by cause.
    repairs: str = ""
    #: Records that kproxy says are lost.
    told: int = 0


@contextmanager
def directly(site: Site) -> Iterator[Place]:
    """Client, relays, brokers."""
    faults = Faults()
    with relayed_brokers(faults, site.brokers, config=site.settings) as (kafka, relays):
        yield Place(f"127.0.0.1:{relays[0].port}", kafka, faults)


@contextmanager
def through(site: Site) -> Iterator[Place]:
    """Client, relays, kproxy, brokers."""
    faults = Faults()
    with (
        RealKafka(site.brokers, config=site.settings) as kafka,
        relayed_kproxy(kafka, kafka.directory, faults) as (kproxy, _),
    ):
        yield Place(f"127.0.0.1:{kproxy.advertised[0]}", kafka, faults, kproxy)


def run(client: Client, name: str, place: Place, count: int) -> Found:
    """Runs a trial on a topic of its own."""
    topic, kind, written = f"{name}.{client.name}", KINDS[name], Written()
    session.create_topics(place.kafka.bootstrap, [topic], config=kind.config, places=kind.places)
    step = session.produce_step(topic, "none", lossy.numbered(count, None))
    step.update(chunk=_CHUNK, timeout_ms=_TIMEOUT_MS)
    if kind.pace is not None:
        step["pace"] = list(kind.pace)
    if kind.is_hasty:
        step["tolerant"] = True
    began, before = time.monotonic(), _counts(place)
    place.faults.drop_answers = _LOST
    try:
        with meanwhile(kind, place, topic, written):
            job = session.job(place.bootstrap, client.options, [step])
            [result] = run_driver(client.install(), job, _PATIENCE_S)
    finally:
        place.faults.drop_answers = None
    written.read(place.kafka.bootstrap, topic)
    acked: list[object] = result.get("acked") or []
    failed = [number for number, one in enumerate(acked) if one is None]
    found = written.compare(count, failed)
    rose = {name: value - before.get(name, 0) for name, value in _counts(place).items()}
    told = rose.pop("", 0)
    repairs = " ".join(f"{cause} {count}" for cause, count in rose.items() if count > 0)
    reasons = Counter[str]()
    for text, number in (result.get("errors") or {}).items():
        reasons[_NUMBER.sub("n", text)] += number
    shown = "; ".join(f"{number} {text}" for text, number in reasons.items())
    seconds = time.monotonic() - began
    return Found(
        found.duplicates, found.lost, found.disorder, len(failed), _error(result), seconds, shown, repairs, told
    )


def _error(result: Mapping[str, Any]) -> str:
    """The reason why a client gave up. It did if all of its last records failed, too; empty: it did not."""
    acked: Sequence[object] = result.get("acked") or []
    if acked and not any(acked[-len(acked) // _LAST :]):
        errors: Mapping[str, int] = result["errors"]
        return max(errors, key=errors.__getitem__)[:200]
    return str(result.get("error", "")).partition("\n")[0][:200]


def is_bad(found: Found, kind: Kind, client: Client) -> bool:
    """Whether something is wrong beyond what the brokers have lost.

    What they have lost of a client without numbers, and it sends again, comes after what it wrote in the meantime.
    """
    late = found.late and not (kind.loses and is_plain(client))
    return bool(found.copies or late or ((found.missing or found.error) and not kind.loses))


def _counts(place: Place) -> dict[str, int]:
    """The errors about numbers by cause, and by an empty name the lost records. AssertionError: kproxy has failed."""
    if place.kproxy is None:
        return {}
    problems = log_problems(place.kproxy.log.read_text(encoding="utf-8", errors="replace"))
    assert not problems, problems[-1]
    with urllib.request.urlopen(f"http://127.0.0.1:{place.kproxy.http}/metrics", timeout=_PAGE_S) as answer:
        page = answer.read().decode()
    found = {cause: int(float(value)) for cause, value in _REPAIRS.findall(page)}
    return found | {"": sum(int(float(value)) for value in _LOST_RECORDS.findall(page))}
