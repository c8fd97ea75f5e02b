"""Reading the three sources. A flag beats the environment, that beats the file, that beats the default."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kproxy.codec.accelerator import SWITCH, SWITCH_VALUES
from kproxy.config.model import Config
from kproxy.config.option_checks import cross_check, fit_defaults
from kproxy.config.options import options
from kproxy.config.values import Raw, show, suggest
from kproxy.errors import KproxyError

CONFIG_FILE = "config"
CONFIG_FILE_VARIABLE = "KPROXY_CONFIG"

_OPTIONS = options(Config)
_PREFIX = "KPROXY_"
# Kubernetes sets such variables in every pod if there is a service called kproxy or kproxy-something;
# KPROXY_CACHE is where the demo and the tests keep their downloads; KPROXY_URL names a running kproxy for the commands;
# KPROXY_ACCELERATOR is read before any option is.
_FOREIGN_VARIABLE = re.compile(
    r"KPROXY_(ACCELERATOR|CONFIG|CACHE|URL|(\w+_)?(SERVICE_HOST|SERVICE_PORT\w*|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?))"
)


class ConfigError(KproxyError):
    """The configuration cannot be used; ``problems`` has one line for each thing to put right."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration and, for each option's dotted name, where its value comes from."""

    config: Config
    sources: dict[str, str]


class _Given(NamedTuple):
    raw: Raw
    source: str


def load(flags: Mapping[str, str], environ: Mapping[str, str]) -> Config:
    """The effective configuration.

    ``flags`` is keyed by dotted option name; ``config`` in it names the file. Raises ConfigError with all problems.
    """
    return load_with_sources(flags, environ).config


def load_with_sources(flags: Mapping[str, str], environ: Mapping[str, str]) -> Loaded:
    """As ``load``, with the source of every value."""
    problems: list[str] = []
    path = flags.get(CONFIG_FILE) or environ.get(CONFIG_FILE_VARIABLE)
    given: dict[str, _Given] = {}
    file_read = True
    if path:
        try:
            given |= _from_file(path)
        except ConfigError as error:
            file_read = False
            problems += error.problems
    given |= dict(_from_environment(environ))
    given |= {name: _Given(raw, _flag_source(name)) for name, raw in flags.items() if name != CONFIG_FILE}
    problems += [_unknown_option(name, entry) for name, entry in given.items() if name not in _OPTIONS]
    values = _parse(given, problems)
    problems += _wrong_switch(environ)
    if "bootstrap.servers" not in given and file_read:
        problems.append(_missing("bootstrap.servers"))
    if problems:
        raise ConfigError(problems)
    config = Config(**fit_defaults(values))
    if problems := cross_check(config):
        raise ConfigError(problems)
    return Loaded(config, {name: given[name].source if name in given else "default" for name in _OPTIONS})


def load_one(name: str, flags: Mapping[str, str], environ: Mapping[str, str]) -> Any:
    """The value of one option, even if others are wrong. ConfigError if it is wrong itself."""
    path = flags.get(CONFIG_FILE) or environ.get(CONFIG_FILE_VARIABLE)
    given = _from_file(path) if path else {}
    given |= dict(_from_environment(environ))
    given |= {key: _Given(raw, _flag_source(key)) for key, raw in flags.items() if key == name}
    problems: list[str] = []
    values = _parse({name: given[name]} if name in given else {}, problems)
    if problems:
        raise ConfigError(problems)
    attribute = _OPTIONS[name].attribute
    return values.get(attribute, Config.__dataclass_fields__[attribute].default)


def _from_file(path: str) -> dict[str, _Given]:
    from kproxy.config.yaml_file import read_file  # YAML takes long to import, and many have no file

    given: dict[str, _Given] = {}
    for name, raw in _flatten(read_file(path)):
        if name in given:
            raise ConfigError([f"{name} is given twice in the configuration file {path}"])
        given[name] = _Given(raw, f"file {path}")
    return given


def _flatten(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Raw]]:
    """``log: {level: debug}`` means the same as ``log.level: debug``."""
    for key, raw in content.items():
        name = f"{prefix}{key}"
        is_section = name not in _OPTIONS and any(known.startswith(f"{name}.") for known in _OPTIONS)
        if is_section and isinstance(raw, dict):
            yield from _flatten(raw, f"{name}.")
        else:
            yield name, raw


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, _Given]]:
    names = {entry.variable: name for name, entry in _OPTIONS.items()}
    for variable, text in environ.items():
        if variable in names:
            yield names[variable], _Given(text, f"environment {variable}")
        elif variable.startswith(_PREFIX) and not _FOREIGN_VARIABLE.fullmatch(variable):
            name = variable.removeprefix(_PREFIX).lower().replace("_", ".")
            yield name, _Given(text, f"environment {variable}")


def _wrong_switch(environ: Mapping[str, str]) -> list[str]:
    if (said := environ.get(SWITCH, SWITCH_VALUES[0])) in SWITCH_VALUES:
        return []
    return [f"{SWITCH} = {said!r} (environment): must be {' or '.join(SWITCH_VALUES)}"]


def _flag_source(name: str) -> str:
    return f"flag --{name.replace('.', '-')}"


def _unknown_option(name: str, entry: _Given) -> str:
    nearest = suggest(name, list(_OPTIONS)) or "; kproxy run --help lists all"
    return f"unknown option {name!r} ({entry.source}){nearest}"


def _missing(name: str) -> str:
    entry = _OPTIONS[name]
    return f"{name} is required: give {entry.flag} HOST:PORT, {entry.variable} or {name} in the configuration file"


def _parse(given: Mapping[str, _Given], problems: list[str]) -> dict[str, Any]:
    values = {}
    for name, entry in given.items():
        if name in _OPTIONS:
            try:
                values[_OPTIONS[name].attribute] = _OPTIONS[name].kind.parse(entry.raw)
            except ValueError as error:
                shown = "..." if _OPTIONS[name].kind.secret else show(entry.raw)
                problems.append(f"{name} = {shown!r} ({entry.source}): {error}")
    return values
