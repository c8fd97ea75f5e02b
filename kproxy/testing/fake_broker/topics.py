"""Topics of the fake cluster."""

from dataclasses import dataclass, field
from typing import Final

from kproxy.testing.fake_broker.partition import Partition

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})


@dataclass(slots=True)
class Topic:
    """One topic; ``config`` holds only what was set."""

    name: str
    topic_id: bytes
    config: dict[str, str]
    partitions: list[Partition] = field(default_factory=list)
