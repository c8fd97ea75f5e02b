"""Levels of logs, and the parts of kproxy that have one of their own."""

from typing import Final

from kproxy.config.values import LogLevelRule, choice, rule_list, suggest

LEVELS: Final = ("debug", "info", "warning", "error")

SUBSYSTEMS: Final = (
    "app",
    "audit",
    "broker_log",
    "cluster",
    "connection",
    "control",
    "doubts",
    "files",
    "fleet",
    "group_offsets",
    "handover",
    "lane_log",
    "login",
    "own_topic",
    "resend",
    "server",
    "tls",
    "topic_policies",
    "transaction_log",
    "transactions",
    "unknown_producer_ids",
    "upstream",
    "webhook",
)
"""What ``subsystem`` says in a line; in the code ``structlog.get_logger("kproxy.app")``."""

LEVEL: Final = choice(*LEVELS)


def parse_subsystem(word: str) -> str:
    """One of ``SUBSYSTEMS``. ValueError says which there are."""
    name = word.strip().lower()
    if name not in SUBSYSTEMS:
        raise ValueError(f"subsystem {name!r} must be one of {', '.join(SUBSYSTEMS)}{suggest(name, SUBSYSTEMS)}")
    return name


LOG_LEVEL_RULES: Final = rule_list(
    "list of SUBSYSTEM=LEVEL",
    "subsystems",
    "must be SUBSYSTEM=LEVEL rules, such as server=debug,tls=error",
    lambda name, level: LogLevelRule(parse_subsystem(name), LEVEL.parse(level)),
)
