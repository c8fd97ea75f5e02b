"""A reload: which options of a configuration that was read again take effect without a restart."""

from dataclasses import replace
from typing import Any, NamedTuple

from kproxy.config.model import Config
from kproxy.config.option_checks import cross_check
from kproxy.config.options import Change, Option, options
from kproxy.config.sources import ConfigError, Loaded

_OPTIONS = options(Config)


class Changed(NamedTuple):
    """An option with another value than before."""

    option: Option
    before: Any
    after: Any


class Reload(NamedTuple):
    """The result of reading the sources again."""

    #: In force from now on: what was, with all that can change without a restart.
    loaded: Loaded
    applied: tuple[Changed, ...]
    #: What the sources say and only a restart brings.
    waiting: tuple[Changed, ...]
    #: Dotted names of all other options.
    unchanged: tuple[str, ...]


def merge(running: Loaded, wanted: Loaded) -> Reload:
    """The options of ``wanted`` that take effect now. ConfigError if they contradict options that need a restart."""
    changed = [
        Changed(entry, before, after)
        for entry in _OPTIONS.values()
        if (before := getattr(running.config, entry.attribute)) != (after := getattr(wanted.config, entry.attribute))
    ]
    applied = tuple(each for each in changed if each.option.change is not Change.RESTART)
    waiting = tuple(each for each in changed if each.option.change is Change.RESTART)
    config = replace(running.config, **{each.option.attribute: each.after for each in applied})
    if problems := cross_check(config):
        names = ", ".join(each.option.name for each in waiting)
        raise ConfigError([f"{line}; a restart is needed for {names}" for line in problems])
    kept = {each.option.name for each in waiting}
    sources = {name: (running if name in kept else wanted).sources[name] for name in _OPTIONS}
    names_changed = {each.option.name for each in changed}
    unchanged = tuple(name for name in _OPTIONS if name not in names_changed)
    return Reload(Loaded(config, sources), applied, waiting, unchanged)
