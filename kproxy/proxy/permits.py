"""Who may use which transactional id, and who may end another's transaction."""

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple


class PermitRule(NamedTuple):
    """Transactional ids that match the one glob pattern are for clients whose client.id matches the other."""

    transactional_id: str
    client_id: str


class Permits(NamedTuple):
    """What a connection may do; the rules know no principals yet, but clients' names and hosts."""

    rules: Sequence[PermitRule] = ()
    #: Whether this connection may abort any transaction of kproxy's.
    is_admin: bool = False

    def may_use(self, transactional_id: str, client_id: str) -> bool:
        """Whether a client may use an id: one for which there is a rule only by such a rule."""
        clients = [rule.client_id for rule in self.rules if fnmatchcase(transactional_id, rule.transactional_id)]
        return not clients or any(fnmatchcase(client_id, pattern) for pattern in clients)


def is_admin(host: str, admins: Collection[str]) -> bool:
    """Whether a host (as ``normal_host`` writes it) is one of an operator's, by glob patterns."""
    return any(fnmatchcase(host, pattern) for pattern in admins)
