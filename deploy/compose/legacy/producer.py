"""Sends a reading every 100 ms with the protocol of Kafka 0.9, for ever, or as many as the argument says."""

import itertools
import json
import os
import sys
import time

from kafka import KafkaProducer

limit = int(sys.argv[1]) if len(sys.argv) > 1 else None
producer = KafkaProducer(
    bootstrap_servers=os.environ["BOOTSTRAP_SERVERS"],
    client_id="legacy-producer",
    api_version=(0, 9),
    acks="all",
    retries=10,
    value_serializer=lambda reading: json.dumps(reading).encode(),
)
for number in itertools.islice(itertools.count(1), limit):
    producer.send("readings", {"number": number, "at": time.time()}).get(timeout=60)
    if number % 100 == 0 or number == limit:
        print(f"{number} readings acknowledged")
    time.sleep(0.1)
producer.close()
