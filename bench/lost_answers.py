"""What becomes of records whose acknowledgements are lost: counted in the log, directly and through kproxy.

The clients, their relays and the count are those of the interop tests.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.load import LoadError
from bench.report import Figure
from kproxy.testing.kafka import RealKafka
from kproxy.testing.relay import Drop
from tests.interop import lossy, resender, session
from tests.interop.catalog import CLIENTS
from tests.support.clients import run_driver

RECORDS: Final = 50_000
SENDS: Final = 10_000
_BYTES_PER_RECORD, _BYTES_PER_SEND = 10_000, 50_000
_CLIENT: Final = next(client for client in CLIENTS if client.name == "kafka-python-1.4.7-pinned-0.10")
_RETRYING: Final[dict[str, Any]] = {
    "retries": 1000,
    "retry_backoff_ms": 20,
    "reconnect_backoff_ms": 20,
    "batch_size": 2000,
    "max_in_flight_requests_per_connection": 1,
}
_LOSS: Final = 0.03
_SERVES_OLD: Final = "3.9.1"
"""The last release that serves this client without kproxy."""
_TIMEOUT_SECONDS: Final = 300


def lost_answers(total_bytes: int) -> list[Figure]:
    """kafka-python 1.4.7 on the protocol of 0.10, and a model client half of whose records equal earlier ones.

    The numbers of records and sends follow `total_bytes`, up to 50,000 and 10,000.
    """
    records = max(5_000, min(RECORDS, total_bytes // _BYTES_PER_RECORD))
    sends = max(100, min(SENDS, total_bytes // _BYTES_PER_SEND))
    with lossy.direct(_SERVES_OLD) as chain:
        direct = {codec: _produce(chain, codec, records) for codec in ("none", "gzip")}
    with _through_kproxy() as chain:
        through = {codec: _produce(chain, codec, records) for codec in ("none", "gzip")}
        compared, lost = _equal_payloads(chain, sends)
    figures = []
    for codec, found in through.items():
        figures += _figures(f"{records:,} records, {codec}, 3 % of answers lost", direct[codec], found)
    what = f"{sends:,} sends, {lost:,} answers lost, half equal"
    figures.append(_none(f"{what}: doubled", None, compared.doubled))
    figures.append(_none(f"{what}: merged", None, compared.merged))
    return figures


@contextmanager
def _through_kproxy() -> Iterator[lossy.Chain]:
    with (
        tempfile.TemporaryDirectory(prefix="kproxy-bench-") as directory,
        RealKafka() as kafka,
        lossy.through_kproxy(kafka.bootstrap, Path(directory) / "log", "--log-level", "error") as chain,
    ):
        yield chain


def _produce(chain: lossy.Chain, codec: str, records: int) -> lossy.Findings:
    topic = f"bench-{codec}"
    session.create_topics(chain.broker, [topic])
    step = session.produce_step(topic, codec, lossy.numbered(records, None))
    step["timeout_ms"] = _TIMEOUT_SECONDS * 1000
    options = {**_CLIENT.options, "producer": _RETRYING}
    chain.faults.drop_answers = Drop(share=_LOSS)
    [result] = run_driver(_CLIENT.install(), session.job(chain.bootstrap, options, [step]), _TIMEOUT_SECONDS)
    chain.faults.drop_answers = None
    if "error" in result:
        raise LoadError(result["error"])
    return lossy.examine(chain.broker, topic, records)


def _equal_payloads(chain: lossy.Chain, count: int) -> tuple[resender.Comparison, int]:
    topic = "bench-equal"
    session.create_topics(chain.broker, [topic])
    sends = resender.half_equal(count, int(time.time() * 1000))
    chain.faults.drop_answers = Drop(every=2, share=0.1)
    with resender.Resender(chain.bootstrap, topic, "bench-model") as producer:
        for send in sends:
            producer.send(send)
    chain.faults.drop_answers = None
    return resender.compare(chain.broker, topic, sends), producer.lost_answers


def _figures(what: str, direct: lossy.Findings, found: lossy.Findings) -> list[Figure]:
    return [
        _none(f"{what}: duplicates", direct.duplicates, found.duplicates),
        _none(f"{what}: lost", direct.lost, found.lost),
        _none(f"{what}: out of order", direct.disorder, found.disorder),
    ]


def _none(case: str, direct: int | None, found: int) -> Figure:
    return Figure(case, "records", direct, None, found, "0", found == 0)
