"""``--json``, which most commands take, and what they print by it."""

import json
import sys
from collections.abc import Callable
from typing import TypeVar

import click

from kproxy.config import ExitCode

_Found = TypeVar("_Found")

json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: object) -> None:
    """Prints it indented, with a line break at its end."""
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def show(found: _Found, as_json: bool, report: Callable[[_Found], None]) -> int:
    """Prints what a command found, as JSON or as ``report`` prints it for people; exit code 0."""
    if as_json:
        print_json(found)
    else:
        report(found)
    return ExitCode.OK
