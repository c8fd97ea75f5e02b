"""Reads the file of identities (``upstream.sasl.identities.file``): as whom each client is known at the brokers."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kproxy.config.secrets import SECRET, SecretLocation
from kproxy.config.section import Section, read_list

EVERYBODY = "*"
"""The entry for all principals that have no entry of their own."""


class BrokerIdentity(NamedTuple):
    """A name at the brokers, and where its password is."""

    username: str
    password: SecretLocation


def load_identities(file: Path) -> Mapping[str, BrokerIdentity]:
    """By principal; ConfigError with one line for each fault."""
    identities: dict[str, BrokerIdentity] = {}

    def read(section: Section) -> None:
        principal = section.text("principal")
        if principal in identities:
            section.fault(f"{principal!r} is given twice", "principal")
        if principal and principal != EVERYBODY and ":" not in principal:
            section.fault(f"must be TYPE:NAME, such as 'User:{principal}', or '*' for all others", "principal")
        identities[principal] = BrokerIdentity(section.text("username"), _location(section))

    read_list(file, "identities", "a list with principal, username and password.location", read)
    return identities


def _location(section: Section) -> SecretLocation:
    raw = section.text("password.location")
    try:
        found = SECRET.parse(raw)
    except ValueError as error:
        section.fault(str(error), "password.location")
        found = None
    else:
        if found is None and raw:
            section.fault("must not be off", "password.location")
    return found or SecretLocation(variable="")
