"""A partition of a topic."""

from typing import TypeAlias

#: The topic's name and the partition's index.
TopicPartition: TypeAlias = tuple[str, int]
