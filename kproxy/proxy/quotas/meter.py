"""What all connections use together of their limits, and what one of them has to wait for (KIP-124, KIP-219)."""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from kproxy.codec.messages import ApiKey
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.quotas.buckets import Buckets
from kproxy.proxy.quotas.quota_rules import Entity, Limit, QuotaRules, Share
from kproxy.proxy.versions import FREE, LOGINS, READS

#: Requests of ``FREE`` that a connection may send before its client is taken as known: enough for a login.
_MOST_FREE: Final = 5
#: Whose bytes count for ``producer_byte_rate``; those of ``READS`` count for the other one.
_WRITTEN: Final = ApiKey.PRODUCE


class TooManyConnections(RemoteProtocolError):
    """A client has more connections than it may."""

    refusal = "quota"


class Throttle(NamedTuple):
    """A wait, and the limit that asks for it."""

    limit: Limit
    seconds: float


#: Called with each wait.
Tell: TypeAlias = Callable[[Throttle], None]


class Quotas:
    """The rules in force and what is used of them. The shell replaces the rules when their file has changed."""

    def __init__(self, rules: QuotaRules, longest: float, tell: Tell) -> None:
        """``longest``: the longest wait, in seconds."""
        self.rules = rules
        self.buckets: Buckets[tuple[Limit, Entity]] = Buckets(longest)
        self.connections: Counter[Entity] = Counter()
        self.tell = tell


class Meter:
    """One connection's part in it."""

    __slots__ = ("_client", "_counted", "_free", "_identified_by", "_quotas", "_rules", "_shares")

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._rules = quotas.rules
        #: The rules by which it was counted among the connections.
        self._identified_by: QuotaRules | None = None
        self._client: tuple[str, str] | None = None
        self._free = 0
        self._shares: dict[Limit, Share] = {}
        #: As whose connection this one is counted.
        self._counted: Entity | None = None

    @property
    def limits_answers(self) -> bool:
        """Whether a Fetch response may need a throttle time, so that it can't be sent before that is known."""
        return Limit.CONSUMER_BYTE_RATE in self._shares or Limit.REQUEST_RATE in self._shares

    def identify(self, api_key: int, principal: str, client_id: str, now: float) -> float:
        """Records who sends a request; returns the seconds that it has to wait because of too many new connections.

        TooManyConnections: it can't be served.
        """
        client = (principal, client_id)
        rules = self._quotas.rules
        if self._client == client and self._identified_by is rules:
            return 0.0
        if api_key in FREE and self._free < _MOST_FREE:
            self._free += 1
            return 0.0
        is_new = self._client is None
        self._client = client
        self._renew(rules)
        self._count(client)
        self._identified_by = rules
        return self._used(Limit.CONNECTION_CREATION_RATE, 1, now) if is_new else 0.0

    def _renew(self, rules: QuotaRules) -> None:
        self._rules = rules
        self._shares = {} if self._client is None else rules.of(*self._client)

    def _count(self, client: tuple[str, str]) -> None:
        self.close()
        share = self._shares.get(Limit.CONNECTIONS)
        if share is None:
            return
        connections = self._quotas.connections
        if connections[share.entity] >= share.value:
            principal, client_id = client
            who = f"{principal} with client.id {client_id!r}"
            raise TooManyConnections(f"{who} has {share.value} connections already, all that its quota allows")
        connections[share.entity] += 1
        self._counted = share.entity

    def answered(self, api_key: int, request_bytes: int, answer_bytes: int, now: float) -> float:
        """Counts a request when its response is sent; returns the seconds for which its client must be muted."""
        if self._rules is not self._quotas.rules:
            self._renew(self._quotas.rules)
        if api_key in LOGINS or not self._shares:
            return 0.0
        wait = self._used(Limit.REQUEST_RATE, 1, now)
        if api_key == _WRITTEN:
            wait = max(wait, self._used(Limit.PRODUCER_BYTE_RATE, request_bytes, now))
        elif api_key in READS:
            wait = max(wait, self._used(Limit.CONSUMER_BYTE_RATE, answer_bytes, now))
        return wait

    def _used(self, limit: Limit, amount: int, now: float) -> float:
        share = self._shares.get(limit)
        if share is None:
            return 0.0
        wait = self._quotas.buckets.take((limit, share.entity), amount, share.value, now)
        if wait:
            self._quotas.tell(Throttle(limit, wait))
        return wait

    def close(self) -> None:
        """Records that the connection is no longer counted."""
        if self._counted is not None:
            self._quotas.connections[self._counted] -= 1
            if not self._quotas.connections[self._counted]:
                del self._quotas.connections[self._counted]
            self._counted = None
