"""Limits and the clients that they apply to, in Kafka's order of precedence (KIP-13, KIP-55,
``ClientQuotaManager``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

_ANY: Final = "*"


class Limit(StrEnum):
    """What can be limited, by Kafka's names where it has one; rates are for each second."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_RATE = "request_rate"
    CONNECTIONS = "connections"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


class Entity(NamedTuple):
    """The clients that share a limit; None: any principal, or any client.id."""

    principal: str | None
    client_id: str | None


@dataclass(frozen=True, slots=True)
class QuotaRule:
    """Limits for principals and client ids that fit patterns. Each that fits has the limit for itself."""

    #: A name, a glob, or ``*`` for those that no other rule names; None: all, together.
    principal: str | None
    client_id: str | None
    limits: Mapping[Limit, int]
    name: str = ""
    line: int = 0

    def fits(self, principal: str, client_id: str) -> bool:
        return _fits(self.principal, principal) and _fits(self.client_id, client_id)

    def entity(self, principal: str, client_id: str) -> Entity:
        """With whom a client that is meant shares the limits."""
        return Entity(None if self.principal is None else principal, None if self.client_id is None else client_id)

    @property
    def precedence(self) -> tuple[int, int, int, int]:
        """The higher, the sooner: the principal before the client.id, a name before a glob, and that before ``*``."""
        return (_rank(self.principal), _rank(self.client_id), len(self.principal or ""), len(self.client_id or ""))


def _fits(pattern: str | None, name: str) -> bool:
    return pattern is None or fnmatchcase(name, pattern)


def _rank(pattern: str | None) -> int:
    if pattern is None:
        return 0
    if pattern == _ANY:
        return 1
    return 2 if any(letter in pattern for letter in "*?[") else 3


class Share(NamedTuple):
    """A limit that applies to a client, and the entity that shares it."""

    value: int
    entity: Entity


class QuotaRules:
    """All rules."""

    def __init__(self, rules: Sequence[QuotaRule] = ()) -> None:
        """Of two with the same precedence the first counts."""
        self.rules = tuple(rules)
        self._ordered = sorted(rules, key=lambda rule: rule.precedence, reverse=True)

    def of(self, principal: str, client_id: str) -> dict[Limit, Share]:
        """What holds for a client: each limit by the first rule in order of precedence that has it."""
        found: dict[Limit, Share] = {}
        for rule in self._ordered:
            if rule.fits(principal, client_id):
                entity = rule.entity(principal, client_id)
                for limit, value in rule.limits.items():
                    found.setdefault(limit, Share(value, entity))
        return found
