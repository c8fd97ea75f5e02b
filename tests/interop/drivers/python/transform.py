"""An application of its time on kafka-python 1.4: consume, transform, produce, flush, commit; it knows no transactions.

Standard input has a JSON object: `bootstrap`, `version`, `client_id`, `group`, `source`, `target`. Runs until it is
killed. A commit that fails is an occasion to continue from the offsets that are committed, as its documentation says.
"""

import json
import sys
from typing import Any

import installed_six

installed_six.use()

from kafka import KafkaConsumer, KafkaProducer  # noqa: E402
from kafka.errors import CommitFailedError  # noqa: E402

_MOST_RECORDS = 25


def _main(job: dict[str, Any]) -> None:
    both = {"bootstrap_servers": job["bootstrap"], "api_version": tuple(job["version"]), "client_id": job["client_id"]}
    consumer = KafkaConsumer(
        job["source"],
        group_id=job["group"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
        max_poll_records=_MOST_RECORDS,
        **both,
    )
    producer = KafkaProducer(acks="all", retries=3, linger_ms=2, **both)
    while True:
        found = consumer.poll(timeout_ms=200)
        for where, records in found.items():
            for record in records:
                producer.send(job["target"], record.value, partition=where.partition)
        if not found:
            continue
        producer.flush()
        try:
            consumer.commit()
        except CommitFailedError:
            print("begins anew", flush=True)


_main(json.load(sys.stdin))
