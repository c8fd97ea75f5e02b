"""Whether the broker's coordinator or kproxy's decides the transactions of a transactional id, and for which client."""

from collections.abc import Iterable, Mapping
from enum import Enum
from fnmatch import fnmatchcase
from typing import NamedTuple

from kproxy.codec.messages import ApiKey
from kproxy.codec.version_choice import VersionRange


class Home(Enum):
    """Where the decision about a transaction is made."""

    AUTO = "auto"
    """At the broker where it serves transactions, else at kproxy."""
    BROKER = "broker"
    """Passed through: markers in the log, and consumers need no kproxy."""
    BROKER_FENCED = "broker-fenced"
    """By the broker, but asked by kproxy, which gives each transaction an epoch of its own (KIP-890)."""
    KPROXY = "kproxy"
    """On kproxy's own log."""

    @property
    def is_broker(self) -> bool:
        """Whether the broker decides, wherever it is."""
        return self in (Home.BROKER, Home.BROKER_FENCED)

    def is_kproxy(self, served: Mapping[int, VersionRange]) -> bool:
        """Whether clients ask kproxy, in front of a broker that serves ``served``."""
        if self is Home.AUTO:
            return ApiKey.INIT_PRODUCER_ID not in served or ApiKey.ADD_PARTITIONS_TO_TXN not in served
        return self is not Home.BROKER


class HomeRule(NamedTuple):
    """The home of the transactional ids that match the glob pattern."""

    transactional_id: str
    home: Home


def home_of(rules: Iterable[HomeRule], transactional_id: str) -> Home:
    """The home by the first rule that fits; AUTO if none does."""
    for rule in rules:
        if fnmatchcase(transactional_id, rule.transactional_id):
            return rule.home
    return Home.AUTO


def is_kproxys(rules: Iterable[HomeRule], transactional_id: str, served: Mapping[int, VersionRange]) -> bool:
    """Whether clients ask kproxy about the transactions of an id, in front of a broker that serves ``served``."""
    return home_of(rules, transactional_id).is_kproxy(served)


def any_kproxys(rules: Iterable[HomeRule], served: Mapping[int, VersionRange]) -> bool:
    """Whether there may be an id about whose transactions clients ask kproxy."""
    for rule in rules:
        if rule.home.is_kproxy(served):
            return True
        if rule.transactional_id == "*":
            return False
    return Home.AUTO.is_kproxy(served)
