"""What ``kproxy acl`` prints."""

from collections.abc import Collection, Sequence
from typing import Any

from kproxy.cli.tables import new_console, new_table
from kproxy.proxy.authorization.acl_rules import Operation, ResourceType, Rule, Rules, Subject


def rule_json(rule: Rule) -> dict[str, Any]:
    """The rule as an object for JSON."""
    return {
        "name": rule.name,
        "line": rule.line,
        "permission": _permission(rule),
        "principals": list(rule.principals),
        "hosts": [pattern.text for pattern in rule.hosts],
        "client_ids": list(rule.client_ids),
        "operations": sorted(operation.value for operation in rule.operations),
        "resources": [
            {"type": resource.type.value, "name": resource.name, "pattern": resource.pattern.value}
            for resource in rule.resources
        ],
    }


def print_rules(rules: Sequence[Rule], super_users: Collection[str]) -> None:
    """A table, one line for each rule."""
    table = new_table("line", "rule", "permission", "principals", "operations", "resources", "hosts", "client.ids")
    for rule in rules:
        table.add_row(
            str(rule.line),
            rule.name or "-",
            _permission(rule),
            ", ".join(rule.principals),
            ", ".join(sorted(operation.value for operation in rule.operations)),
            ", ".join(map(str, rule.resources)),
            ", ".join(pattern.text for pattern in rule.hosts),
            ", ".join(rule.client_ids),
        )
    new_console().print(table, markup=False)
    if super_users:
        new_console().print(f"super users: {', '.join(sorted(super_users))}", markup=False, highlight=False)


def explained(rules: Rules, subject: Subject, operation: Operation, type_: ResourceType, name: str) -> dict[str, Any]:
    """The decision, the rule that made it, and why each other rule does not apply."""
    allowed, rule = rules.of(subject).decide(operation, type_, name)
    is_super = subject.principal in rules.super_users
    return {
        "allowed": allowed,
        "why": _why(allowed, rule, is_super),
        "principal": subject.principal,
        "host": subject.host,
        "client_id": subject.client_id,
        "operation": operation.value,
        "resource_type": type_.value,
        "resource_name": name,
        "rule": None if rule is None else rule_json(rule),
        "rules": [
            {
                "name": each.name,
                "line": each.line,
                "permission": _permission(each),
                "applies": mismatch is None,
                "why": "applies" if mismatch is None else mismatch.value,
            }
            for each, mismatch in rules.explain(subject, operation, type_, name)
        ],
    }


def print_explained(found: dict[str, Any]) -> None:
    """The decision as a sentence, and a table of the rules."""
    console = new_console()
    word = "allowed" if found["allowed"] else "DENIED"
    client = f" with client.id {found['client_id']}" if found["client_id"] else ""
    what = f"{found['operation']} on {found['resource_type']} {found['resource_name']}"
    line = f"{word}: {what} for {found['principal']} from {found['host']}{client}: {found['why']}"
    console.print(line, markup=False, highlight=False, soft_wrap=True)
    if not found["rules"]:
        return
    table = new_table("line", "rule", "permission", "")
    for rule in found["rules"]:
        style = "bold" if rule["applies"] else "dim"
        table.add_row(str(rule["line"]), rule["name"] or "-", rule["permission"], rule["why"], style=style)
    console.print(table, markup=False)


def _why(allowed: bool, rule: Rule | None, is_super: bool) -> str:
    if is_super:
        return "is one of super.users"
    if rule is None:
        return "no rule allows it"
    return f"{rule} {'allows' if allowed else 'denies'} it"


def _permission(rule: Rule) -> str:
    return "allow" if rule.allows else "deny"
