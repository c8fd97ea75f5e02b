"""Flags made from the option table, with one section of help for each group of options."""

from typing import Any

import click

from kproxy.config import Config, Option, options
from kproxy.config.sources import CONFIG_FILE, CONFIG_FILE_VARIABLE

OPTIONS = options(Config)


class ConfigCommand(click.Command):
    """A command that takes every option of ``Config`` as a flag, unparsed, and ``--config``."""

    def __init__(self, name: str, params: list[click.Parameter] | None = None, **kwargs: Any) -> None:
        super().__init__(name, params=[*(params or []), _file_flag(), *map(_flag, OPTIONS.values())], **kwargs)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        names = {entry.attribute: entry.group for entry in OPTIONS.values()}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                groups.setdefault(names.get(param.name or "", "Options"), []).append(record)
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records, col_max=36)


def given_flags(params: dict[str, str | None]) -> dict[str, str]:
    """What was given on the command line, by dotted option name as ``load`` wants it."""
    by_attribute = {entry.attribute: name for name, entry in OPTIONS.items()} | {CONFIG_FILE: CONFIG_FILE}
    return {by_attribute[key]: text for key, text in params.items() if text is not None}


def _file_flag() -> click.Option:
    text = f"YAML file with 'option: value' lines. [environment: {CONFIG_FILE_VARIABLE}]"
    return click.Option([f"--{CONFIG_FILE}"], metavar="FILE", help=text)


def _flag(entry: Option) -> click.Option:
    default = "required" if entry.required else f"default: {entry.default_text} {entry.kind.unit}".rstrip()
    return click.Option([entry.flag, entry.attribute], metavar=entry.kind.metavar, help=f"{entry.reason} [{default}]")
