"""Reads the file of rules (``acl.file``): all faults are reported at once, with their lines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kproxy.config.section import Section, read_list
from kproxy.config.values import suggest
from kproxy.proxy.authorization.acl_rules import (
    ANY,
    CLUSTER_NAME,
    SUPPORTED,
    HostPattern,
    Operation,
    PatternType,
    Resource,
    ResourceType,
    Rule,
    Rules,
)

#: The keys that name resources.
_NAMED: Final = {
    "topics": ResourceType.TOPIC,
    "groups": ResourceType.GROUP,
    "transactional.ids": ResourceType.TRANSACTIONAL_ID,
}
_PERMISSIONS: Final = {"allow": True, "deny": False}
_OPERATIONS: Final = {operation.value.lower(): operation for operation in Operation}
_PATTERNS: Final = {pattern.value: pattern for pattern in PatternType}


def load_rules(file: Path, super_users: Sequence[str] = ()) -> Rules:
    """The rules of a file; ConfigError with one line for each fault."""
    return Rules(read_list(file, "rules", "a list of rules", _rule), super_users)


def _rule(section: Section) -> Rule:
    permission = section.text("permission").lower()
    if permission and permission not in _PERMISSIONS:
        section.fault(f"{permission!r} must be allow or deny{suggest(permission, list(_PERMISSIONS))}", "permission")
    if not section.has("principals"):
        section.fault("is missing: who is meant, such as User:alice or User:*", "principals")
    principals = section.texts("principals")
    for principal in principals:
        if ":" not in principal and not principal.startswith("*"):
            section.fault(f"{principal!r} must be TYPE:NAME, such as 'User:{principal}'", "principals")
    resources = _resources(section)
    return Rule(
        allows=_PERMISSIONS.get(permission, False),
        principals=principals,
        hosts=_hosts(section),
        client_ids=section.texts("client.ids") or (ANY,),
        operations=_operations(section, resources),
        resources=resources,
        name=section.maybe("name") or "",
        line=section.place.line,
    )


def _hosts(section: Section) -> tuple[HostPattern, ...]:
    found = []
    for text in section.texts("hosts") or (ANY,):
        try:
            found.append(HostPattern(text))
        except ValueError:
            section.fault(f"{text!r} is no network, such as 10.0.0.0/8", "hosts")
    return tuple(found)


def _resources(section: Section) -> tuple[Resource, ...]:
    word = (section.maybe("pattern") or PatternType.LITERAL.value).lower()
    pattern = _PATTERNS.get(word)
    if pattern is None:
        section.fault(f"{word!r} must be one of {', '.join(_PATTERNS)}{suggest(word, list(_PATTERNS))}", "pattern")
        pattern = PatternType.LITERAL
    found = [Resource(type_, name, pattern) for key, type_ in _NAMED.items() for name in section.texts(key)]
    if section.has("cluster") and section.flag("cluster"):
        found.append(Resource(ResourceType.CLUSTER, CLUSTER_NAME))
    if not found and not any(section.has(key) for key in _NAMED):
        section.fault(f"names no resource: give {', '.join(_NAMED)} or cluster: true")
    if pattern is PatternType.LITERAL:
        for resource in found:
            if resource.name != ANY and ("*" in resource.name or "?" in resource.name):
                section.fault(f"{resource.name!r} has a wildcard: that needs pattern: glob")
    return tuple(found)


def _operations(section: Section, resources: Sequence[Resource]) -> frozenset[Operation]:
    if not section.has("operations"):
        section.fault("is missing: what is meant, such as Read, or All", "operations")
    found = set()
    for word in section.texts("operations"):
        operation = _OPERATIONS.get(word.lower())
        if operation is None:
            valid = [each.value for each in Operation]
            section.fault(f"{word!r} must be one of {', '.join(valid)}{suggest(word, valid)}", "operations")
            continue
        found.add(operation)
        for type_ in sorted({resource.type for resource in resources}):
            if operation is not Operation.ALL and operation not in SUPPORTED[type_]:
                there = ", ".join(each.value for each in Operation if each in SUPPORTED[type_])
                section.fault(f"there is no {operation.value} on a {type_.value}, but {there}", "operations")
    return frozenset(found)
