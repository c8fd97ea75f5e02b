"""librdkafka, which sends the numbers from 0 on at some pace and reports how far it is.

Its job is one line of input: ``config`` of librdkafka, ``topic``, ``count``, ``per_second``, ``first_ms`` (the first
record's timestamp; null leaves timestamps to the client), ``step_ms`` (how much later the timestamp of each other one
is than that of the one before; 1 if not given), ``padding`` (spaces after each
number; 0 if not given), ``burst`` (how many are sent at once; 1 if not given), ``first_alone`` (whether the others wait
until the first record is acknowledged; false if not given). It reports how many records are ``done``, each time that a
hundredth of the count has been added, and at the end which numbers were ``acknowledged``.
"""

import json
import sys
import time
from typing import Any

import confluent_kafka

_FLUSH_S = 150


def main() -> None:
    """Send, wait for what is open, report."""
    job = json.loads(sys.stdin.readline())
    producer = confluent_kafka.Producer(job["config"])
    count, acknowledged, errors = job["count"], [], []
    padding = b" " * job.get("padding", 0)
    burst, step_ms = job.get("burst", 1), job.get("step_ms", 1)
    step = max(1, count // 100)

    def done(error: Any, message: Any) -> None:
        if error is None:
            acknowledged.append(int(message.value()))
        else:
            errors.append(str(error))
        if (len(acknowledged) + len(errors)) % step == 0:
            _report({"done": len(acknowledged) + len(errors)})

    begin = time.monotonic()
    for number in range(count):
        stamp = {} if job["first_ms"] is None else {"timestamp": job["first_ms"] + number * step_ms}
        producer.produce(job["topic"], b"%d" % number + padding, partition=0, on_delivery=done, **stamp)
        if number == 0 and job.get("first_alone", False):
            producer.flush(_FLUSH_S)
            begin = time.monotonic()
        producer.poll(max(0.0, begin + number // burst * burst / job["per_second"] - time.monotonic()))
    producer.flush(_FLUSH_S)
    _report({"acknowledged": acknowledged, "errors": errors})


def _report(fields: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
