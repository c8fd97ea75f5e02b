"""Writes docs/kproxy.1, the manual page, from the commands; with ``--check`` only tells whether it is up to date."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from kproxy import __version__
from kproxy.cli.main_command import cli
from kproxy.config import EXIT_CODES
from tools.one_page import write_or_check

PAGE = Path(__file__).parent.parent / "docs" / "kproxy.1"

_HEAD = f"""\
.\\" Made by `make generate` from the commands in kproxy/cli; edit those.
.TH KPROXY 1 "" "kproxy {__version__}" "User Commands"
.SH NAME
kproxy \\- a Kafka proxy that gives idempotence and transactions to clients that have none
.SH SYNOPSIS
.B kproxy
.I COMMAND
.RI [ OPTION ]...
.SH DESCRIPTION"""

_DESCRIPTION = """\
kproxy stands between Kafka clients and brokers, next to the application (sidecar) or as a gateway. Clients from 0.8.2
on work with the brokers of today; producers that have no idempotence get it, and transactions if they want them.

Every option of kproxy run can be given in three ways. A flag beats the environment (KPROXY_BOOTSTRAP_SERVERS), that
beats the file (bootstrap.servers: ...), that beats the default."""

_FILES = {
    "/etc/kproxy/kproxy.yaml": "The configuration of kproxy.service.",
    "/run/kproxy/control.sock": "Where kproxy txn looks for the control API (control.socket).",
}
_ENVIRONMENT = {
    "KPROXY_CONFIG": "The configuration file, where --config is not given.",
    "KPROXY_...": "Any option of kproxy run: capitals, underscores for dots.",
    "KPROXY_ACCELERATOR": "off: kproxy does not use its compiled functions, even if they are installed; default: on.",
    "KPROXY_CACHE": "Where kproxy demo keeps what it downloads; ~/.cache/kproxy by default.",
}


def render() -> str:
    """The whole page, as roff."""
    lines = [_HEAD, *_text(_DESCRIPTION), ".SH COMMANDS"]
    for path, command in _commands(click.Context(cli, info_name="kproxy")):
        lines += [f'.SS "{_escape(path)}"', *_command(path, command)]
    lines += [".SH ENVIRONMENT", *_terms(_ENVIRONMENT), ".SH FILES", *_terms(_FILES)]
    lines += [".SH EXIT STATUS", *_terms({str(code.value): text for code, text in EXIT_CODES.items()})]
    return "\n".join(lines) + "\n"


def _commands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    group = context.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from _commands(inner)
        else:
            yield inner.command_path, command


def _command(path: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f".B {_escape(path)}\n{_escape(usage)}\n.PP"
    yield from _text(command.help or "")
    for param in command.get_params(context):
        record = param.get_help_record(context)
        if record is not None and "--help" not in param.opts:
            yield from _terms({record[0]: record[1]})
    if command.epilog:
        yield ".PP"
        yield from _text(command.epilog)


def _terms(terms: dict[str, str]) -> Iterator[str]:
    for term, text in terms.items():
        yield f".TP\n.B {_escape(term)}\n{_escape(text)}"


def _text(text: str) -> Iterator[str]:
    """Paragraphs; one that begins with a backspace keeps its lines, as in click."""
    for number, paragraph in enumerate(filter(None, text.strip("\n").split("\n\n"))):
        if number:
            yield ".PP"
        if paragraph.startswith("\b"):
            yield ".nf"
            yield from map(_escape, paragraph.removeprefix("\b").strip("\n").split("\n"))
            yield ".fi"
        else:
            yield _escape(" ".join(paragraph.split()))


def _escape(line: str) -> str:
    """A line that roff prints as it is; it takes a full stop or an apostrophe at its beginning for a request."""
    line = (
        line.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq").replace("~", "\\(ti").replace("'", "\\(aq")
    )
    return f"\\&{line}" if line.startswith((".", "\\(aq")) else line


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a difference."""
    return write_or_check(PAGE, render(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
