"""``kproxy acl``: what a file of rules says, without a kproxy that runs."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kproxy.cli.groups import help_group
from kproxy.cli.output import json_flag, new_console, new_table, show
from kproxy.config import ConfigError, ExitCode
from kproxy.config.acl_file import load_rules
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

_Command = TypeVar("_Command", bound=Callable[..., Any])
_EXAMPLES = """\b
Examples:
  kproxy acl check acl.yaml
  kproxy acl list --acl-file acl.yaml --principal User:orders
  kproxy acl explain --acl-file acl.yaml --principal User:orders --operation Write --topic orders
  kproxy acl explain --acl-file acl.yaml --principal User:etl --host 10.1.2.3 --operation Read --group etl --json

\b
Exit codes:
  0  allowed; the file is right
  1  denied
  2  wrong command line or file"""
#: The options that name a resource.
_NAMED: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


acl = help_group("acl", "Check a file of rules, list them, and explain what they decide.", _EXAMPLES)


def _from_file(command: _Command) -> _Command:
    for option in (
        json_flag,
        click.option(
            "--super-users",
            metavar="LIST",
            envvar="KPROXY_SUPER_USERS",
            default="",
            help="Principals that need no rule, joined by semicolons: kproxy's super.users.",
        ),
        click.option(
            "--acl-file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            envvar="KPROXY_ACL_FILE",
            required=True,
            help="The rules: kproxy's acl.file.",
        ),
    ):
        command = option(command)
    return command


def _rules(file: Path, super_users: str) -> Rules:
    return load_rules(file, [name.strip() for name in super_users.split(";") if name.strip()])


@acl.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_flag
def check(file: Path, as_json: bool) -> int:
    """Check a file of rules: each fault with its line."""
    problems: list[str] = []
    count = 0
    try:
        count = len(load_rules(file).rules)
    except ConfigError as error:
        if not as_json:
            raise
        problems = error.problems
    text = f"{file}: {count} rule{'' if count == 1 else 's'}, no faults"
    show({"ok": not problems, "problems": problems, "rules": count}, as_json, lambda _: click.echo(text))
    return ExitCode.USAGE if problems else ExitCode.OK


@acl.command(name="list")
@_from_file
@click.option("--principal", metavar="PRINCIPAL", help="Only rules about this principal, such as User:alice.")
def list_(acl_file: Path, super_users: str, as_json: bool, principal: str | None) -> int:
    """List the rules of a file."""
    rules = _rules(acl_file, super_users)
    found = [rule for rule in rules.rules if principal is None or rule.is_about_principal(principal)]
    as_rows = {"rules": [rule_json(rule) for rule in found], "super_users": sorted(rules.super_users)}
    return show(as_rows, as_json, lambda _: print_rules(found, rules.super_users))


@acl.command()
@_from_file
@click.option("--principal", default="User:ANONYMOUS", show_default=True, metavar="PRINCIPAL", help="Who asks.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="From which address.")
@click.option("--client-id", default="", metavar="NAME", help="With which client.id.")
@click.option(
    "--operation",
    required=True,
    type=click.Choice([each.value for each in Operation if each is not Operation.ALL], case_sensitive=False),
    help="Kafka's name of what is asked for.",
)
@click.option("--topic", metavar="NAME")
@click.option("--group", metavar="NAME")
@click.option("--transactional-id", metavar="NAME")
@click.option("--cluster", is_flag=True)
def explain(
    acl_file: Path,
    super_users: str,
    as_json: bool,
    principal: str,
    host: str,
    client_id: str,
    operation: str,
    cluster: bool,
    **named: str | None,
) -> int:
    """Tell whether something is allowed, which rule decides, and why the others do not."""
    type_, name = _resource(named, cluster)
    asked = next(each for each in Operation if each.value.lower() == operation.lower())
    if asked not in SUPPORTED[type_]:
        there = ", ".join(each.value for each in Operation if each in SUPPORTED[type_])
        raise click.UsageError(f"there is no {asked.value} on a {type_.value}, but {there}")
    subject = Subject(principal, plain_address(host), client_id)
    found = explained(_rules(acl_file, super_users), subject, asked, type_, name)
    show(found, as_json, print_explained)
    return ExitCode.OK if found["allowed"] else ExitCode.FAILURE


def _resource(named: dict[str, str | None], cluster: bool) -> tuple[ResourceType, str]:
    given = [(type_, text) for key, type_ in _NAMED.items() if (text := named[key]) is not None]
    if cluster:
        given.append((ResourceType.CLUSTER, CLUSTER_NAME))
    if len(given) != 1:
        raise click.UsageError("give one of --topic, --group, --transactional-id and --cluster")
    return given[0]


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
