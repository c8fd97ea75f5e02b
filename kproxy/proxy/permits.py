"""Which clients may use which transactional id, and which may end another client's transaction."""

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from kproxy.proxy.principals import USER


class PermitRule(NamedTuple):
    """Transactional ids that match the one glob pattern are for clients that match the other."""

    transactional_id: str
    #: Of client ids; one that begins with ``User:`` is of principals.
    client: str

    def fits(self, client_id: str, principal: str) -> bool:
        """Whether a client is one of those whom the rule names."""
        return fnmatchcase(principal if self.client.startswith(USER) else client_id, self.client)


class Permits(NamedTuple):
    """What a connection may do with transactions."""

    rules: Sequence[PermitRule] = ()
    #: Whether this connection may abort any transaction of kproxy's.
    is_admin: bool = False

    def may_use(self, transactional_id: str, client_id: str, principal: str) -> bool:
        """Whether a client may use an id: one for which there is a rule only by such a rule."""
        rules = [rule for rule in self.rules if fnmatchcase(transactional_id, rule.transactional_id)]
        return not rules or any(rule.fits(client_id, principal) for rule in rules)


def is_listed(host: str, patterns: Collection[str]) -> bool:
    """Whether a host (as ``normal_host`` writes it) matches one of an option's glob patterns."""
    return any(fnmatchcase(host, pattern) for pattern in patterns)
