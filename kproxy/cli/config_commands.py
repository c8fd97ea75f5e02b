"""``kproxy config`` and ``kproxy log-level``: options before they are used, and in a kproxy that runs."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from kproxy.cli.flags import OPTIONS, ConfigCommand, given_flags
from kproxy.cli.groups import help_group
from kproxy.cli.output import new_console, new_table, print_json
from kproxy.cli.output import show as show_found
from kproxy.cli.where import WHERE, control_client, control_options
from kproxy.config import ConfigError, ExitCode, Loaded, StartupError, load_with_sources
from kproxy.config import show as show_value
from kproxy.config.log_levels import LEVELS, SUBSYSTEMS
from kproxy.config.sources import CONFIG_FILE

_ALL = "all"
_DEFAULT = "default"
_EXAMPLES = """\b
Examples:
  kproxy config init
  kproxy config check /etc/kproxy/kproxy.yaml
  kproxy config show --json
  kproxy config reload"""
_LEVEL_EXAMPLES = """\b
Examples:
  kproxy log-level
  kproxy log-level server debug
  kproxy log-level server default
  kproxy log-level all warning"""


config = help_group(
    "config",
    "Write a first file, check options; show those of a kproxy that runs, and have it read them again.",
    f"{_EXAMPLES}\n\n{WHERE}",
)


@config.command()
@click.option("--output", "-o", "file", default="kproxy.yaml", show_default=True, metavar="FILE", help="- for stdout.")
@click.option("--all", "every", is_flag=True, help="Every option, in place of those that are set most.")
@click.option("--force", is_flag=True, help="Write over a file that exists.")
def init(file: str, every: bool, force: bool) -> int:
    """Write a commented configuration file; each option has its default, its unit and what it is for."""
    from kproxy.cli.config_sample import sample

    if file == "-":
        click.echo(sample(every), nl=False)
        return ExitCode.OK
    try:
        with Path(file).open("w" if force else "x", encoding="utf-8") as output:
            output.write(sample(every))
    except FileExistsError:
        raise click.UsageError(
            f"{file} exists: choose another name with --output, or write over it with --force"
        ) from None
    except OSError as error:
        raise click.UsageError(f"cannot write {file}: {error.strerror}") from None
    click.echo(f"wrote {file}: set bootstrap.servers in it, then: kproxy config check {file}")
    return ExitCode.OK


@config.command(
    cls=ConfigCommand,
    params=[
        click.Argument(["file"], metavar="[FILE]", required=False),
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON."),
    ],
)
def check(file: str | None, as_json: bool, **params: Any) -> int:
    """Check the configuration and print every value with its source; takes the options of run.

    It loads every file that run loads before it serves, and ends with the exit code of run if one cannot be used. It
    connects to nothing.
    """
    from kproxy.cli.config_files import load_files

    if file is not None and params[CONFIG_FILE] is not None:
        raise click.UsageError(f"the file is given twice: {file} and --{CONFIG_FILE} {params[CONFIG_FILE]}")
    try:
        loaded = load_with_sources(given_flags({**params, CONFIG_FILE: file or params[CONFIG_FILE]}), dict(os.environ))
    except ConfigError as error:
        if not as_json:
            raise
        print_json(report(None, error.problems))
        return ExitCode.USAGE
    try:
        load_files(loaded.config)
    except StartupError as error:
        if not as_json:
            raise
        print_json(report(loaded, [str(error)]))
        return error.exit_code
    return show_found(report(loaded, []), as_json, lambda _: print_table(loaded))


@config.command()
@click.option("--changed", is_flag=True, help="Only options that do not have their default.")
@control_options
def show(as_json: bool, changed: bool, **where: Any) -> int:
    """Show the configuration in force, and where each value comes from."""
    found = control_client(**where).config()
    if changed:
        found["options"] = [row for row in found["options"] if row["source"] != "default"]
    return show_found(found, as_json, lambda _: print_running(found["options"]))


@config.command()
@control_options
def reload(as_json: bool, **where: Any) -> int:
    """Have file, environment and flags read again; says what that has changed."""
    found = control_client(**where).reload_config()
    return show_found(found, as_json, _print_reload)


def _print_reload(found: dict[str, Any]) -> None:
    for row in found["applied"]:
        click.echo(f"applied ({row['change']}): {row['name']}: {row['before']} -> {row['after']}")
    for row in found["restart_needed"]:
        click.echo(f"needs a restart: {row['name']}: {row['before']} -> {row['after']}")
    click.echo(f"{len(found['unchanged'])} options are unchanged")


@click.command("log-level", epilog=f"{_LEVEL_EXAMPLES}\n\n{WHERE}")
@click.argument("subsystem", required=False, type=click.Choice([_ALL, *SUBSYSTEMS]), metavar="[SUBSYSTEM]")
@click.argument("level", required=False, type=click.Choice([*LEVELS, _DEFAULT]), metavar="[LEVEL]")
@control_options
def log_level(subsystem: str | None, level: str | None, as_json: bool, **where: Any) -> int:
    """Show what a kproxy that runs logs at least, or set it, for all or one subsystem; default: as its options say."""
    if subsystem is not None and level is None:
        raise click.UsageError(f"give a level, too: {', '.join([*LEVELS, _DEFAULT])}")
    client = control_client(**where)
    if level is None:
        found = client.log_levels()
    else:
        found = client.set_log_level(level, None if subsystem == _ALL else subsystem)
    return show_found(found, as_json, _print_levels)


def _print_levels(found: dict[str, Any]) -> None:
    click.echo(f"{_ALL}: {found['level']}")
    for row in found["overrides"]:
        click.echo(f"{row['subsystem']}: {row['level']}")


def report(loaded: Loaded | None, problems: list[str]) -> dict[str, object]:
    """For JSON: ``ok``, ``problems``, and ``options`` with value and source of each."""
    found = {} if loaded is None else {name: _entry(loaded, name) for name in OPTIONS}
    return {"ok": not problems, "problems": problems, "options": found}


def print_table(loaded: Loaded) -> None:
    """A table of option, value, unit and source."""
    rows = []
    for name, entry in OPTIONS.items():
        value = getattr(loaded.config, entry.attribute)
        shown = f"({entry.default_text})" if value is None and entry.default_text != "off" else show_value(value)
        rows.append((name, shown, entry.kind.unit, loaded.sources[name]))
    _print("Effective configuration of kproxy", ("value", "unit", "source"), rows)


def print_running(rows: Iterable[Mapping[str, str | int]]) -> None:
    """A table of the options of a kproxy that runs, as its control API tells them."""
    columns = ("value", "unit", "source", "change")
    shown = [(str(row["name"]), *(show_value(row[column]) for column in columns)) for row in rows]
    _print("Configuration in force", columns, shown)


def _print(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.table import Column

    name_column = Column("option", no_wrap=True, overflow="ignore")  # to be copied whole
    table = new_table(name_column, *columns, title=title)
    for row in rows:
        table.add_row(*row, style="dim" if "default" in row else "bold")
    new_console().print(table, markup=False)


def _entry(loaded: Loaded, name: str) -> dict[str, object]:
    value = getattr(loaded.config, OPTIONS[name].attribute)
    plain = value if isinstance(value, (bool, int, str)) or value is None else show_value(value)
    return {"value": plain, "source": loaded.sources[name]}
