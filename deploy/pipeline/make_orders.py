"""Writes order events as a client of 2015 would: the protocol of Kafka 0.9, no idempotence, no transactions.

python make_orders.py --bootstrap-servers 127.0.0.1:19092 --orders 1000

Every 50th line is broken, every 10th amount has a comma. Order n is the same in each run, and ``--first`` continues
after an earlier one. Exit status 1 if a line was not acknowledged.
"""

import argparse
import json
import sys
from datetime import UTC, datetime, timedelta

from confluent_kafka import KafkaError, Message, Producer

BEGAN = datetime(2015, 3, 1, 12, 0, tzinfo=UTC)
SHOPS = ("bonn", "Bonn ", "koeln", "Aachen", "aachen")


def line(number: int) -> bytes:
    """The event of an order, a second after the one before it."""
    cents = 100 + number * 37 % 9900
    point = "," if number % 10 == 0 else "."
    event = {
        "id": f"o-{number:07}",
        "shop": SHOPS[number % len(SHOPS)],
        "amount": f"{cents // 100}{point}{cents % 100:02}",
        "at": (BEGAN + timedelta(seconds=number)).isoformat(),
    }
    text = json.dumps(event).encode()
    return text[: len(text) // 2] if number % 50 == 0 else text


def main() -> int:
    """Sends them all, and waits for every response."""
    parser = argparse.ArgumentParser(description="Write order events with the protocol of Kafka 0.9.")
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:19092", metavar="LIST")
    parser.add_argument("--topic", default="orders-raw")
    parser.add_argument("--orders", type=int, default=1000, metavar="N")
    parser.add_argument("--first", type=int, default=1, metavar="NUMBER", help="of the first order")
    options = parser.parse_args()
    failed: list[str] = []

    def answered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error.str())

    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap_servers,
            "api.version.request": False,
            "broker.version.fallback": "0.9.0.1",
            "client.id": "old-shop",
            "log_level": 3,
            "acks": "all",
        }
    )
    for number in range(options.first, options.first + options.orders):
        while True:
            try:
                producer.produce(options.topic, line(number), on_delivery=answered)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(60):
        failed.append(f"{left} lines without an answer")
    for text in dict.fromkeys(failed):
        sys.stderr.write(f"not written: {text}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
