"""What the doctor has seen: plain facts, so that the checks are functions of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kproxy.codec._generated.metadata import MetadataResponsePartition, MetadataResponseTopic
from kproxy.config import Address, Config
from kproxy.proxy.authorization.access import OPERATION_CODES
from kproxy.proxy.authorization.acl_rules import Operation
from kproxy.proxy.routing import is_own_topic

#: What a broker answers that was not asked for rights, or can't tell them.
NOT_TOLD: Final = -(1 << 31)


@dataclass(slots=True)
class SeenBroker:
    """A broker of the last Metadata response, at the address that it advertises."""

    node_id: int
    address: Address
    #: Why it can't be reached; None if it can.
    error: str | None = None
    release: str = ""
    features: Mapping[str, int] = field(default_factory=dict)
    #: By API key the versions that it serves.
    versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    #: Its own; None where it will not tell.
    settings: Mapping[str, str] | None = None


class ClockSkew(NamedTuple):
    """How far another clock is ahead of this host's, and how far off that may be; both in ms."""

    ahead_ms: int
    uncertain_ms: int


@dataclass(slots=True)
class Examined:
    """All that was found; what could not be found is empty or None."""

    config: Config
    #: By bootstrap server why it can't be reached; None if it can.
    bootstrap: dict[Address, str | None] = field(default_factory=dict)
    brokers: list[SeenBroker] = field(default_factory=list)
    topics: dict[str, MetadataResponseTopic] = field(default_factory=dict)
    #: Of topics, by name; without those that brokers do not describe to this client.
    settings: dict[str, Mapping[str, str]] = field(default_factory=dict)
    #: Bits of authorized operations (KIP-430); NOT_TOLD where the brokers can't tell.
    cluster_rights: int = NOT_TOLD
    #: The error of an InitProducerId; None if it could not be asked.
    producer_id_error: int | None = None
    clock: ClockSkew | None = None
    #: Soft and hard limit of open files; -1: none.
    open_files: tuple[int, int] = (0, 0)
    #: What a running kproxy says of itself (``GET /v1/status``); None if none answers.
    running: Mapping[str, Any] | None = None

    @property
    def reached(self) -> list[SeenBroker]:
        return [broker for broker in self.brokers if broker.error is None]

    def broker_numbers(self, name: str) -> dict[int, int]:
        """A setting of each broker that tells it, as a number, by the broker's id."""
        found = {}
        for broker in self.reached:
            text = (broker.settings or {}).get(name, "")
            if text.lstrip("-").isdigit():
                found[broker.node_id] = int(text)
        return found

    def users_topics(self) -> Iterator[str]:
        """The topics that are neither kproxy's nor Kafka's own."""
        for name, topic in self.topics.items():
            if not topic.is_internal and not is_own_topic(name):
                yield name

    def partitions(self) -> Iterator[tuple[str, MetadataResponsePartition]]:
        """Each partition, with its name: orders-3."""
        for name, topic in self.topics.items():
            for partition in topic.partitions:
                yield f"{name}-{partition.partition_index}", partition


def has(rights: int, operation: Operation) -> bool:
    """Whether bits of authorized operations (KIP-430) contain one."""
    return bool(rights >> OPERATION_CODES[operation] & 1)
