"""A commented configuration file to begin with; its texts and defaults are those of the option table."""

import re
import textwrap
from itertools import groupby
from typing import Final

from kproxy import __version__
from kproxy.config import Config, Option, options, show

#: What everybody sets.
_LIVE: Final = ("bootstrap.servers", "instance.id", "listen")
_OFTEN: Final = (
    *_LIVE,
    "advertised.address",
    "broker.ports",
    "http",
    "ssl.certificate.location",
    "ssl.key.location",
    "sasl.enabled.mechanisms",
    "sasl.credentials.location",
    "acl.file",
    "upstream.security.protocol",
    "upstream.ssl.ca.location",
    "upstream.sasl.mechanism",
    "upstream.sasl.username",
    "upstream.sasl.password.location",
    "buffer.memory",
    "max.connections",
    "retry.window.ms",
    "transactions.home",
    "control.socket",
    "log.level",
    "log.format",
)
_BROKERS: Final = "[kafka-1:9092, kafka-2:9092]"
_FIRST_SENTENCE: Final = re.compile(r".+?\.(?=\s|$)")
_WIDTH: Final = 110
_HEAD: Final = f"""\
# Options of kproxy {__version__}. Remove the # before a name to set it.
# Check this file: kproxy config check FILE. Run kproxy with it: kproxy run --config FILE.
"""
_MORE: Final = "# kproxy config init --all writes every option, kproxy run --help explains each."


def sample(every: bool) -> str:
    """A configuration file with the options that are set most, or every one; only what everybody sets is in force."""
    parts = [_HEAD if every else f"{_HEAD}{_MORE}\n"]
    chosen = [entry for entry in options(Config).values() if every or entry.name in _OFTEN]
    for group, members in groupby(chosen, key=lambda entry: entry.group):
        parts.append(f"# ---- {group}\n")
        parts.extend(map(_entry, members))
    return "\n".join(parts)


def _entry(entry: Option) -> str:
    first = None if entry.name in _LIVE else _FIRST_SENTENCE.match(entry.reason)
    unit = f" ({entry.kind.unit})" if entry.kind.unit else ""
    default = entry.default_text if entry.default_is_text else default_yaml(entry).strip('"')
    about = [first[0] if first else entry.reason]
    about.append(f"Value: {entry.kind.label}{unit}. {'Required' if entry.required else f'Default: {default}'}.")
    lines = [line for text in about for line in textwrap.wrap(text, _WIDTH, break_on_hyphens=False)]
    return "".join(f"# {line}\n" for line in lines) + f"{_setting(entry)}\n"


def _setting(entry: Option) -> str:
    if entry.required:
        return f"{entry.name}: {_BROKERS}"
    if entry.name in _LIVE:
        return f"{entry.name}: {show(getattr(Config, entry.attribute))}"
    return f"#{entry.name}:" if entry.default_is_text else f"#{entry.name}: {default_yaml(entry)}"


def default_yaml(entry: Option) -> str:
    """The default as YAML. A bare off would be false there, and * an alias; {} is how an empty list is shown, too."""
    if entry.default_text == "{}":
        try:
            entry.kind.parse({})
        except ValueError:
            return "[]"
    return f'"{entry.default_text}"' if entry.default_text in ("off", "*") else entry.default_text
