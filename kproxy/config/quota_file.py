"""Reads the file of quotas (``quotas.file``): all faults are reported at once, with their lines."""

from pathlib import Path

from kproxy.config.section import Section, read_list
from kproxy.proxy.quotas.quota_rules import Limit, QuotaRule, QuotaRules


def load_quotas(file: Path) -> QuotaRules:
    """The quotas of a file; ConfigError with one line for each fault."""
    return QuotaRules(read_list(file, "quotas", "a list of quotas", _rule))


def _rule(section: Section) -> QuotaRule:
    limits = {limit: section.number(limit.value) for limit in Limit}
    rule = QuotaRule(
        principal=section.maybe("principal"),
        client_id=section.maybe("client.id"),
        limits={limit: value for limit, value in limits.items() if value is not None},
        name=section.maybe("name") or "",
        line=section.place.line,
    )
    if rule.principal is None and rule.client_id is None:
        section.fault("says not for whom: give principal, client.id or both; '*' is for whom no other names")
    if rule.principal is not None and ":" not in rule.principal and not rule.principal.startswith("*"):
        section.fault(f"{rule.principal!r} must be TYPE:NAME, such as 'User:{rule.principal}'", "principal")
    if not rule.limits and not any(section.has(limit.value) for limit in Limit):
        section.fault(f"limits nothing: give {', '.join(Limit)}")
    return rule
