"""The steps `transactions` and `transform` of README.md of the drivers, for all Python clients."""

import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import wire

Result = dict[str, Any]


class Read(NamedTuple):
    """One consumed record."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Producer(Protocol):
    """A transactional producer that is ready to begin."""

    def begin(self) -> None: ...
    def produce(self, topic: str, records: list[Result], wait: bool) -> None: ...
    def send_offsets(self, consumer: Any, topic: str, positions: dict[int, int]) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Consumer(Protocol):
    """A member of a group."""

    def poll(self) -> list[Read]: ...
    def close(self) -> None: ...


def transactions(step: Result, open_producer: Callable[[], Producer]) -> Result:
    """Run a script; an action that fails ends it, unless it is said to fail."""
    producers: dict[str, Producer] = {}
    outcomes: list[str | None] = []
    for action in step["script"]:
        try:
            if action["do"] == "open":
                producers[action["on"]] = open_producer()
            elif action["do"] == "wait":
                _await_file(action["path"], wire.Deadline(step["timeout_ms"]))
            else:
                _act(producers[action["on"]], action)
            outcomes.append(None)
        except Exception as error:
            traceback.print_exc()
            outcomes.append(_chain(error))
            if "fails" not in action:
                break
    for name, producer in producers.items():
        try:
            producer.close()
        except Exception as error:
            print("closing", name, repr(error), file=sys.stderr)
    return {"outcomes": outcomes}


def _await_file(path: str, deadline: wire.Deadline) -> None:
    while not Path(path).exists():
        if not deadline.left():
            raise TimeoutError(f"{path} is not there")
        time.sleep(0.02)


def _chain(error: BaseException | None) -> str:
    causes = []
    while error is not None:
        causes.append(repr(error))
        error = error.__cause__ or error.__context__
    return "; caused by ".join(causes)


def _act(producer: Producer, action: Result) -> None:
    if action["do"] == "produce":
        producer.produce(action["topic"], action["records"], action.get("wait", False))
    else:
        {"begin": producer.begin, "commit": producer.commit, "abort": producer.abort}[action["do"]]()


def transform(step: Result, open_producer: Callable[[], Producer], open_consumer: Callable[[], Consumer]) -> Result:
    """Copy `count` records from `source` to `target` together with the group's offsets, `per` in one transaction."""
    producer, consumer = open_producer(), open_consumer()
    deadline = wire.Deadline(step["timeout_ms"])
    read: deque[Read] = deque()
    left = step["count"]
    try:
        while left:
            size = min(left, step["per"])
            while len(read) < size:
                if not deadline.left():
                    raise TimeoutError(f"{left} records not read")
                read.extend(consumer.poll())
            _one(step, producer, consumer, [read.popleft() for _ in range(size)])
            left -= size
            _end(producer, "commit" if left else step["ending"])
    finally:
        consumer.close()
        producer.close()
    return {}


def _one(step: Result, producer: Producer, consumer: Consumer, some: list[Read]) -> None:
    producer.begin()
    copies = [wire.record(each.partition, 0, each.key, each.value, None, ()) for each in some]
    producer.produce(step["target"], copies, True)
    producer.send_offsets(consumer, step["source"], {each.partition: each.offset + 1 for each in some})


def _end(producer: Producer, ending: str) -> None:
    if ending == "kill":
        sys.stderr.flush()
        os._exit(9)
    {"commit": producer.commit, "abort": producer.abort}[ending]()
