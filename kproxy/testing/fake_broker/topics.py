"""Topics of the fake cluster."""

import re
from dataclasses import dataclass, field
from typing import Final

from kproxy.testing.fake_broker.partition import Partition

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})


@dataclass(slots=True)
class Topic:
    """One topic; ``config`` holds only what was set."""

    name: str
    topic_id: bytes
    config: dict[str, str]
    partitions: list[Partition] = field(default_factory=list)


def legal_topic_name(name: str) -> bool:
    """Tell whether Kafka's ``Topic.validate`` accepts the name."""
    return name not in (".", "..") and _LEGAL_NAME.fullmatch(name) is not None
