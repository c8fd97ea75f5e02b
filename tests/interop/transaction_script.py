"""What each transactional client of the tests does, and what is to be read of it."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.interop.records import PARTITIONS, Record

TIMEOUT_MS: Final = 60_000
SOURCE_RECORDS: Final = 24
COPIED_BEFORE_KILL: Final = 8
"""Records that the first process of a copying client commits; it aborts, and is killed, with others in hand."""


@dataclass
class Script:
    """A client's transactions on two topics: `written` says of each record, in order, whether it was committed."""

    client: str
    topics: tuple[str, str]
    actions: list[dict[str, Any]] = field(default_factory=list)
    written: list[tuple[str, Record, bool]] = field(default_factory=list)

    def do(self, action: str, on: str, **more: Any) -> None:
        """Add an action without records."""
        self.actions.append({"do": action, "on": on, **more})

    def produce(self, on: str, topic: str, count: int, *, committed: bool, fails: bool = False) -> None:
        """Add records over all partitions; those that are not committed are acknowledged first, if they don't fail."""
        first = len(self.written)
        records = [record(f"{self.client} {first + i}", i % PARTITIONS) for i in range(count)]
        more = {"fails": True} if fails else {}
        self.do("produce", on, topic=topic, records=records, wait=not committed, **more)
        if not fails:
            self.written += [(topic, each, committed) for each in records]

    def transaction(self, on: str, ending: str, *counts: int) -> None:
        """Add a whole transaction with so many records for each topic."""
        self.do("begin", on)
        for topic, count in zip(self.topics, counts, strict=False):
            self.produce(on, topic, count, committed=ending == "commit")
        self.do(ending, on)

    def expected(self, topic: str, *, committed: bool) -> list[Record]:
        """Return what a consumer of committed records, or of all, is to see of this client."""
        return [each for where, each, visible in self.written if where == topic and (visible or not committed)]

    @property
    def id(self) -> str:
        """The transactional id, by the topics, too: a client may run several scripts at a time."""
        return f"script.{self.topics[0]}.{self.client}"

    def step(self) -> dict[str, Any]:
        """Return the driver's step."""
        step = {"op": "transactions", "id": self.id, "codec": "gzip", "timeout_ms": TIMEOUT_MS}
        return {**step, "script": self.actions}

    def fenced(self) -> list[int]:
        """Return the indexes of the actions that fail, since the producer is fenced."""
        return [index for index, action in enumerate(self.actions) if "fails" in action]


def record(name: str, partition: int) -> Record:
    """Return a record in the form of the drivers' jobs."""
    text = base64.b64encode(name.encode()).decode()
    return {"p": partition, "k": text, "v": text, "ts": None, "h": []}


def script(client: str, topics: tuple[str, str]) -> Script:
    """Commits, aborts, empty transactions, one after the other; then two producers are fenced by their successors."""
    made = Script(client, topics)
    made.do("open", "a")
    made.transaction("a", "commit", 9, 9)
    made.transaction("a", "abort", 9, 6)
    made.transaction("a", "commit", 0, 9)
    made.transaction("a", "commit")
    made.transaction("a", "abort")
    made.transaction("a", "commit", 3, 3)
    made.transaction("a", "commit", 3)
    # Fenced in the middle of a transaction, which the next producer of the id aborts; some say so at their begin only.
    made.do("begin", "a")
    made.produce("a", topics[0], 6, committed=False)
    made.do("open", "b")
    made.do("begin", "b")
    made.do("commit", "a", fails=True)
    made.produce("b", topics[0], 3, committed=True)
    made.do("commit", "b")
    # Fenced before its first record.
    made.do("begin", "b")
    made.do("open", "c")
    made.do("begin", "c")
    made.produce("b", topics[1], 3, committed=False, fails=True)
    made.produce("c", topics[1], 3, committed=True)
    made.do("commit", "c")
    return made


def copy_steps(client: str, source: str, target: str, last: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the steps of two processes that copy a topic: the first commits some and aborts some, the second
    continues.

    :param last: how the first process ends, `kill` or `abort`.
    """
    step = {"op": "transform", "source": source, "target": target, "group": group(source, client), "codec": "none"}
    step |= {"id": group(source, client), "timeout_ms": TIMEOUT_MS}
    first = [
        {**step, "count": COPIED_BEFORE_KILL, "per": 5, "ending": "commit"},
        {**step, "count": 6, "per": 6, "ending": "abort"},
        {**step, "count": 5, "per": 5, "ending": last},
    ]
    return first, [{**step, "count": SOURCE_RECORDS - COPIED_BEFORE_KILL, "per": 7, "ending": "commit"}]


def group(source: str, client: str) -> str:
    """The name of the group in which a client copies, and its transactional id."""
    return f"copy.{source}.{client}"


def problem(wanted: Iterable[Record], read: Iterable[Record]) -> str:
    """Compare partition by partition, in order; return what is wrong, or an empty string."""
    problems = []
    left, right = list(wanted), list(read)
    for partition in range(PARTITIONS):
        expected, found = _names(left, partition), _names(right, partition)
        if expected != found:
            problems.append(f"partition {partition}: expected {expected}, read {found}")
    return "\n".join(problems)


def _names(records: Iterable[Record], partition: int) -> list[str]:
    return [base64.b64decode(each["v"]).decode()[:60] for each in records if each["p"] == partition]


def of_client(client: str, records: Iterable[Record]) -> list[Record]:
    """Return the records that a client's script wrote."""
    return [each for each in records if base64.b64decode(each["k"]).startswith(f"{client} ".encode())]
