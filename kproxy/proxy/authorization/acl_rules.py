"""Rules and their decisions, as Kafka's ``StandardAuthorizer`` decides by its ACLs: deny wins, then allow, else denied.

Beside principal and host a rule may ask for a client.id, and patterns may be globs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from fnmatch import fnmatchcase
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple, TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network


class Operation(StrEnum):
    """Kafka's ``AclOperation``."""

    ALL = "All"
    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    CLUSTER_ACTION = "ClusterAction"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"


class ResourceType(StrEnum):
    """Kafka's ``ResourceType``, as far as clients of a proxy meet it."""

    TOPIC = "Topic"
    GROUP = "Group"
    TRANSACTIONAL_ID = "TransactionalId"
    CLUSTER = "Cluster"


class PatternType(StrEnum):
    """How a rule names resources: LITERAL and PREFIXED are Kafka's."""

    LITERAL = "literal"
    PREFIXED = "prefixed"
    GLOB = "glob"


#: The one resource of type Cluster.
CLUSTER_NAME: Final = "kafka-cluster"
#: The literal name that means any resource (Kafka's ``ResourcePattern.WILDCARD_RESOURCE``).
ANY: Final = "*"

_O = Operation
#: Which operations there are on a type of resource (Kafka's ``AclEntry.supportedOperations``).
SUPPORTED: Final[dict[ResourceType, frozenset[Operation]]] = {
    ResourceType.TOPIC: frozenset(
        {_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}
    ),
    ResourceType.GROUP: frozenset({_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}),
    ResourceType.TRANSACTIONAL_ID: frozenset({_O.WRITE, _O.DESCRIBE}),
    ResourceType.CLUSTER: frozenset(
        {
            _O.CREATE,
            _O.ALTER,
            _O.DESCRIBE,
            _O.CLUSTER_ACTION,
            _O.DESCRIBE_CONFIGS,
            _O.ALTER_CONFIGS,
            _O.IDEMPOTENT_WRITE,
        }
    ),
}
#: What an allowed operation implies. A denial does not imply it: a principal that may not read may still describe.
IMPLIED: Final[dict[Operation, frozenset[Operation]]] = {
    _O.READ: frozenset({_O.DESCRIBE}),
    _O.WRITE: frozenset({_O.DESCRIBE}),
    _O.DELETE: frozenset({_O.DESCRIBE}),
    _O.ALTER: frozenset({_O.DESCRIBE}),
    _O.ALTER_CONFIGS: frozenset({_O.DESCRIBE_CONFIGS}),
}


class Subject(NamedTuple):
    """Kafka's principal (``User:alice``), the address of the peer, and the client.id of a request."""

    principal: str
    host: str
    client_id: str


class Resource(NamedTuple):
    """What a rule is about."""

    type: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    def matches(self, type_: ResourceType, name: str) -> bool:
        if self.type is not type_:
            return False
        if self.type is ResourceType.CLUSTER:
            return True
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        if self.pattern is PatternType.GLOB:
            return fnmatchcase(name, self.name)
        return self.name in (ANY, name)

    def covers(self, other: "Resource") -> bool:
        """Whether it surely means all that another one does."""
        if self.type is not other.type:
            return False
        if self == other or self.type is ResourceType.CLUSTER or self._is_any:
            return True
        if other.pattern is PatternType.LITERAL and not other._is_any:
            return self.matches(other.type, other.name)
        both_prefixed = self.pattern is other.pattern is PatternType.PREFIXED
        return both_prefixed and other.name.startswith(self.name)

    @property
    def _is_any(self) -> bool:
        return (self.name == ANY and self.pattern is not PatternType.PREFIXED) or (
            self.name == "" and self.pattern is PatternType.PREFIXED
        )

    def __str__(self) -> str:
        """As ``Topic orders- (prefixed)``."""
        if self.type is ResourceType.CLUSTER:
            return self.type.value
        kind = "" if self.pattern is PatternType.LITERAL else f" ({self.pattern.value})"
        return f"{self.type.value} {self.name}{kind}"


class HostPattern:
    """Hosts that a rule means: ``10.0.0.0/8``, a glob such as ``10.1.*``, or ``localhost`` for every loopback."""

    __slots__ = ("_network", "text")

    def __init__(self, text: str) -> None:
        """ValueError if it has a slash and is no network."""
        self.text = text
        self._network: Network | None = ip_network(text, strict=False) if "/" in text else None

    def matches(self, host: str) -> bool:
        """Whether a peer's address (as ``plain_address`` writes it) is one of them."""
        if self._network is None:
            return fnmatchcase(host, self.text) or (self.text == "localhost" and _is_loopback(host))
        try:
            return ip_address(host) in self._network
        except ValueError:
            return False


def plain_address(host: str) -> str:
    """A peer's address as rules name it: without a scope, and ``::ffff:10.0.0.1`` as ``10.0.0.1``."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Mismatch(Enum):
    """The first thing in which a rule does not fit a question."""

    PRINCIPAL = "another principal"
    HOST = "another host"
    CLIENT_ID = "another client.id"
    OPERATION = "another operation"
    RESOURCE = "another resource"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the file."""

    allows: bool
    principals: tuple[str, ...]
    hosts: tuple[HostPattern, ...]
    client_ids: tuple[str, ...]
    operations: frozenset[Operation]
    resources: tuple[Resource, ...]
    name: str = ""
    #: The line of the file at which it begins.
    line: int = 0

    def is_about(self, subject: Subject) -> Mismatch | None:
        """Who is not meant, or None if the subject is."""
        if not self.is_about_principal(subject.principal):
            return Mismatch.PRINCIPAL
        if not any(pattern.matches(subject.host) for pattern in self.hosts):
            return Mismatch.HOST
        if not any(fnmatchcase(subject.client_id, pattern) for pattern in self.client_ids):
            return Mismatch.CLIENT_ID
        return None

    def is_about_principal(self, principal: str) -> bool:
        """Whether a principal fits one of its patterns."""
        return any(fnmatchcase(principal, pattern) for pattern in self.principals)

    def is_of(self, operation: Operation, type_: ResourceType, name: str) -> Mismatch | None:
        """What is not meant, or None if the operation on the resource is."""
        if not any(resource.matches(type_, name) for resource in self.resources):
            return Mismatch.RESOURCE
        return None if self.names(operation) else Mismatch.OPERATION

    def names(self, operation: Operation) -> bool:
        """Whether it decides an operation, named in the rule or implied."""
        if operation in self.operations or _O.ALL in self.operations:
            return True
        return self.allows and any(operation in IMPLIED.get(given, ()) for given in self.operations)

    def __str__(self) -> str:
        return f"{self.name or 'rule'} (line {self.line})"


class Decision(NamedTuple):
    """What was decided, and by which rule; None: by being a super user, or because no rule allows it."""

    allowed: bool
    rule: Rule | None = None


class Rules:
    """All rules, and the principals that need none. Their order makes no difference."""

    def __init__(self, rules: Sequence[Rule] = (), super_users: Sequence[str] = ()) -> None:
        """``super_users``: principals, as Kafka's super.users."""
        self.rules = tuple(rules)
        self.super_users = frozenset(super_users)

    def of(self, subject: Subject) -> "SubjectRules":
        """What there is about one subject, to be asked many times."""
        if subject.principal in self.super_users:
            return SubjectRules((), is_super=True)
        return SubjectRules([rule for rule in self.rules if rule.is_about(subject) is None])

    def explain(
        self, subject: Subject, operation: Operation, type_: ResourceType, name: str
    ) -> Iterator[tuple[Rule, Mismatch | None]]:
        """Each rule, and why it has no say; None if it has."""
        for rule in self.rules:
            yield rule, rule.is_about(subject) or rule.is_of(operation, type_, name)


class SubjectRules:
    """The rules about one subject."""

    __slots__ = ("_allowing", "_denying", "is_super")

    def __init__(self, rules: Sequence[Rule], *, is_super: bool = False) -> None:
        """``is_super``: all is allowed, whatever the rules say."""
        self.is_super = is_super
        self._denying = [rule for rule in rules if not rule.allows]
        self._allowing = [rule for rule in rules if rule.allows]

    def decide(self, operation: Operation, type_: ResourceType, name: str) -> Decision:
        if self.is_super:
            return Decision(True)
        for allowed, rules in ((False, self._denying), (True, self._allowing)):
            for rule in rules:
                if rule.is_of(operation, type_, name) is None:
                    return Decision(allowed, rule)
        return Decision(False)

    def decide_any(self, operation: Operation, type_: ResourceType) -> Decision:
        """Whether it is allowed on some resource of a type (Kafka's ``authorizeByResourceType``)."""
        if self.is_super:
            return Decision(True)
        denied = [
            resource
            for rule in self._denying
            if rule.names(operation)
            for resource in rule.resources
            if resource.type is type_
        ]
        for rule in self._allowing:
            for resource in rule.resources if rule.names(operation) else ():
                if resource.type is type_ and not any(other.covers(resource) for other in denied):
                    return Decision(True, rule)
        return Decision(False)
