"""The principal of a client, in Kafka's form ``User:NAME``: from SASL, from its certificate, or ``User:ANONYMOUS``."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from kproxy.errors import RemoteProtocolError
from kproxy.proxy.distinguished_name import subject_of

#: A client that has told nobody who it is.
ANONYMOUS: Final = "User:ANONYMOUS"
#: What the principal of a user begins with.
USER: Final = "User:"

_DEFAULT: Final = "DEFAULT"
_RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)", re.DOTALL)
_SEPARATOR: Final = re.compile(r"\s*(?:,\s*|$)")
_GROUP: Final = re.compile(r"\$(\d)|\\(.)|([^$\\]+|\$)", re.DOTALL)


class MappingRule(NamedTuple):
    """A rule of Kafka's ssl.principal.mapping.rules; the one called DEFAULT has no pattern."""

    text: str
    pattern: "re.Pattern[str] | None" = None
    #: Text and numbers of groups, in turn.
    replacement: Sequence[str | int] = ()
    #: ``L``, ``U`` or nothing: the case of the result.
    case: str = ""

    def apply(self, name: str) -> str | None:
        """What the rule makes of a distinguished name; None if it does not fit."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        made = "".join(part if isinstance(part, str) else match[part] or "" for part in self.replacement)
        return made.lower() if self.case == "L" else made.upper() if self.case == "U" else made


#: The whole subject.
DEFAULT_MAPPING: Final = (MappingRule(_DEFAULT),)


def user(name: str) -> str:
    """The principal of a user."""
    return USER + name


def of_certificate(certificate: bytes | None, rules: Sequence[MappingRule]) -> str:
    """The principal of a client that showed a certificate (DER), or none.

    RemoteProtocolError if no rule fits its subject.
    """
    if certificate is None:
        return ANONYMOUS
    try:
        subject = subject_of(certificate)
    except ValueError:
        raise RemoteProtocolError("the client's certificate has no subject that can be read") from None
    for rule in rules:
        name = rule.apply(subject)
        if name is not None:
            return user(name)
    raise RemoteProtocolError(f"no rule of ssl.principal.mapping.rules fits the certificate of {subject}")


def parse_mapping_rules(text: str) -> tuple[MappingRule, ...]:
    """``RULE:pattern/replacement/[L|U]`` and ``DEFAULT``, joined by commas. ValueError says what is wrong."""
    rules, at = [], 0
    text = text.strip()
    while at < len(text):
        rule, end = _rule_at(text, at)
        separator = _SEPARATOR.match(text, end)
        if separator is None:
            raise ValueError(f"a comma must follow {rule.text}")
        rules.append(rule)
        at = separator.end()
    return tuple(rules) or DEFAULT_MAPPING


def _rule_at(text: str, at: int) -> tuple[MappingRule, int]:
    if text.startswith(_DEFAULT, at):
        return MappingRule(_DEFAULT), at + len(_DEFAULT)
    match = _RULE.match(text, at)
    if match is None:
        wanted = "must be RULE:PATTERN/REPLACEMENT/CASE (L, U or nothing) or DEFAULT, joined by commas"
        raise ValueError(f"{wanted} (at {text[at : at + 40]!r})")
    try:
        pattern = re.compile(match[1])
    except re.error as error:
        raise ValueError(f"the pattern {match[1]!r} is no regular expression: {error}") from None
    replacement = [int(part[1]) if part[1] else part[2] or part[3] for part in _GROUP.finditer(match[2])]
    highest = max((part for part in replacement if isinstance(part, int)), default=0)
    if highest > pattern.groups:
        raise ValueError(f"the replacement {match[2]!r} names group {highest}; the pattern has {pattern.groups}")
    return MappingRule(match[0], pattern, tuple(replacement), match[3]), match.end()
