"""kafka-python 1.4.7, which sends what it is commanded to and reports each command's outcome.

The first line of input is the job: ``bootstrap`` and ``options``, those of KafkaProducer. Each other line is a command:
``topic``, ``values``, ``key`` or null, ``timestamp`` in ms or null. At the end of input the producer is closed.
"""

import json
import logging
import sys
from importlib import import_module
from typing import Any

from verification.chaos.drivers.kafka_python import use_installed_six

_OUTCOME_S = 120


def main() -> None:
    """Execute the commands."""
    logging.basicConfig(level=logging.CRITICAL)
    use_installed_six()
    job = json.loads(sys.stdin.readline())
    options = {**job["options"], "api_version": tuple(job["options"]["api_version"])}
    producer = import_module("kafka").KafkaProducer(bootstrap_servers=job["bootstrap"], **options)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_send(producer, json.loads(line))) + "\n")
        sys.stdout.flush()
    producer.close(10)


def _send(producer: Any, command: dict[str, Any]) -> dict[str, Any]:
    key = None if command["key"] is None else command["key"].encode()
    futures = [
        producer.send(command["topic"], value.encode(), key=key, partition=0, timestamp_ms=command["timestamp"])
        for value in command["values"]
    ]
    acknowledged, errors = [], []
    for value, future in zip(command["values"], futures, strict=True):
        try:
            future.get(_OUTCOME_S)
            acknowledged.append(value)
        except import_module("kafka.errors").KafkaError as error:
            errors.append(repr(error))
    return {"acknowledged": acknowledged, "errors": errors}


if __name__ == "__main__":
    main()
