"""What one connection may do: its rules, remembered decisions, and reported refusals."""

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Final, NamedTuple, TypeAlias

from kproxy.codec.messages import ErrorCode
from kproxy.proxy.authorization.acl_rules import (
    CLUSTER_NAME,
    SUPPORTED,
    Operation,
    ResourceType,
    Rule,
    Rules,
    Subject,
    plain_address,
)
from kproxy.proxy.screening import name_in

#: What all remembered decisions may take together, in bytes; then all are forgotten and made again when asked for.
_MOST_BYTES: Final = 16 << 20
#: What a decision takes beside its name.
_DECISION_BYTES: Final = 256
#: No decision about a longer name is remembered, and no refusal shows more of it. Kafka's longest topic name has 249.
LONGEST_NAME: Final = 255

#: What a refusal is called on the wire.
ERRORS: Final[Mapping[ResourceType, ErrorCode]] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
#: Kafka's numbers of operations (``AclOperation.code``): the bits of a set of authorized operations.
OPERATION_CODES: Final[Mapping[Operation, int]] = {
    operation: code for code, operation in enumerate(Operation, start=2) if operation is not Operation.ALL
}


#: By operation, type and name of a resource, whether it is allowed to one subject.
_Decisions: TypeAlias = dict[tuple[Operation, ResourceType, str], bool]


class Decided:
    """The decisions of one set of rules, shared by all connections of a subject, within ``_MOST_BYTES``."""

    def __init__(self) -> None:
        self._by_subject: dict[Subject, _Decisions] = {}
        self.size = 0

    def of(self, subject: Subject) -> _Decisions:
        """The remembered decisions of a subject; read only."""
        found = self._by_subject.get(subject)
        if found is None:
            self._charge(_DECISION_BYTES + len(subject.client_id))
            found = self._by_subject[subject] = {}
        return found

    def add(self, subject: Subject, key: tuple[Operation, ResourceType, str], allowed: bool) -> None:
        """Remembers a decision, unless its name is too long."""
        if len(key[2]) <= LONGEST_NAME:
            self._charge(_DECISION_BYTES + len(key[2]))
            self.of(subject)[key] = allowed

    def _charge(self, count: int) -> None:
        if self.size + count > _MOST_BYTES:
            for decisions in list(self._by_subject.values()):  # a long request may be checked in another thread
                decisions.clear()  # connections read from these
            self._by_subject.clear()
            self.size = 0
        self.size += count


class Policy:
    """The rules in force. The shell replaces them when their file has changed."""

    def __init__(self, rules: Rules) -> None:
        self.use(rules)

    def use(self, rules: Rules) -> None:
        """Puts other rules in force; all decisions are forgotten."""
        self.rules = rules
        self.decided = Decided()


class Refusal(NamedTuple):
    """One thing that was not allowed; ``rule`` is the one that denies it, None if none allows it."""

    api_key: int
    operation: Operation
    resource_type: ResourceType
    name: str
    rule: Rule | None


#: Called with each refusal.
Tell: TypeAlias = Callable[[Subject, Refusal], None]


class Access:
    """What a connection may do, by the rules in force and by its principal at the time."""

    def __init__(self, policy: Policy, host: str, topic_names: Mapping[bytes, str], tell: Tell) -> None:
        """``host``: the peer's address. ``topic_names``: what is known of topics that are named by ids (KIP-516)."""
        self._policy = policy
        self._host = plain_address(host)
        self._names = topic_names
        self._tell = tell
        self._rules = policy.rules
        #: The API of the request at hand.
        self.api_key = -1
        #: Whether topics may be made for the Metadata request at hand.
        self.makes_topics = True
        self.subject = Subject("", self._host, "")
        self._about = self._rules.of(self.subject)
        #: What is decided by these rules, of this subject; not by newer ones that it has not been renewed by.
        self._book = policy.decided
        self._decided = self._book.of(self.subject)
        #: The last refusal; the session sets it to None after it has recorded it.
        self.last_refusal: Refusal | None = None

    def renew(self, principal: str, client_id: str) -> bool:
        """Sets principal and client.id; True if they or the rules have changed, so that no earlier decision holds."""
        same = self.subject.principal == principal and self.subject.client_id == client_id
        if same and self._rules is self._policy.rules:
            return False
        self._rules = self._policy.rules
        self.subject = Subject(principal, self._host, client_id)
        self._about = self._rules.of(self.subject)
        self._book = self._policy.decided
        self._decided = self._book.of(self.subject)
        return True

    def apart(self, tell: "Tell") -> "Access":
        """The same rights, by the rules now in force, for another thread; refusals go to ``tell``."""
        made = copy(self)
        made._tell = tell  # noqa: SLF001  # of its own class
        return made

    def told(self, subject: Subject, refusal: Refusal) -> None:
        """Reports what was refused ``apart``."""
        self.last_refusal = refusal
        self._tell(subject, refusal)

    def sees(self, operation: Operation, type_: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether it is allowed. For filters: what is not allowed is not reported as a refusal."""
        key = operation, type_, name
        allowed = self._decided.get(key)
        if allowed is None:
            allowed = self._about.decide(operation, type_, name).allowed
            self._book.add(self.subject, key, allowed)
            self._decided = self._book.of(self.subject)
        return allowed

    def may(self, operation: Operation, type_: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether it is allowed; if not, the refusal is reported."""
        if self.sees(operation, type_, name):
            return True
        rule = self._about.decide(operation, type_, name).rule
        self.last_refusal = Refusal(self.api_key, operation, type_, name[:LONGEST_NAME], rule)
        self._tell(self.subject, self.last_refusal)
        return False

    def error(self, operation: Operation, type_: ResourceType, name: str = CLUSTER_NAME) -> int:
        return 0 if self.may(operation, type_, name) else int(ERRORS[type_])

    def sees_any(self, operation: Operation, type_: ResourceType) -> bool:
        """Whether it is allowed on some resource of a type."""
        return self._about.decide_any(operation, type_).allowed

    def name_of(self, topic: Any) -> str | None:
        """The name of a topic in a message, by itself or by its id; None: an unknown id."""
        name = name_in(topic)
        topic_id: bytes = getattr(topic, "topic_id", b"")
        return name if name or not any(topic_id) else self._names.get(topic_id)

    def topic_error(self, operation: Operation, topic: Any) -> int:
        """As ``error``, for a topic in a message; UNKNOWN_TOPIC_ID, at which clients ask again, for an unknown id."""
        name = self.name_of(topic)
        if name is None and any(getattr(topic, "topic_id", b"")):
            return int(ErrorCode.UNKNOWN_TOPIC_ID)
        return self.error(operation, ResourceType.TOPIC, name or "")

    def authorized(self, bits: int, type_: ResourceType, name: str = CLUSTER_NAME) -> int:
        """A broker's bits of authorized operations (KIP-430) without those that the rules do not allow."""
        if bits < 0:
            return bits  # they were not requested
        allowed = (operation for operation in SUPPORTED[type_] if self.sees(operation, type_, name))
        return bits & sum(1 << OPERATION_CODES[operation] for operation in allowed)
