"""Commands of other modules: shown without being imported, run as if they were the group's own."""

import gc
import importlib
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from kproxy.cli.groups import Elsewhere, LazyGroup, as_if_missing, quick_imports

HEALTH = Elsewhere("kproxy.cli.health_command", "health", "What the group says of it.")


def _group() -> LazyGroup:
    group = LazyGroup(
        "tool", elsewhere={"far": HEALTH, "missing": Elsewhere("kproxy.no_such_module", "x", "Not there.")}
    )
    group.add_command(click.Command("near", help="A command of its own. With more to say.", callback=lambda: 7))
    return group


def test_help_shows_all_and_imports_none() -> None:
    result = CliRunner().invoke(_group(), ["--help"])
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert lines[-3:] == ["far What the group says of it.", "missing Not there.", "near A command of its own."]


def test_both_kinds_run() -> None:
    assert _group().main(["near"], standalone_mode=False) == 7
    result = CliRunner().invoke(_group(), ["far", "--help"])
    assert result.exit_code == 0
    assert result.output.startswith("Usage: tool far [OPTIONS]")


def test_an_unknown_name_is_no_command() -> None:
    group = _group()
    assert group.get_command(click.Context(group), "further") is None


def test_every_command_of_kproxy_is_available_and_help_imports_no_heavy_module() -> None:
    script = (
        "import sys, click\n"
        "from kproxy.cli.main_command import cli\n"
        "context = click.Context(cli)\n"
        "cli.get_help(context)\n"
        "assert not {'trio', 'starlette', 'pyspark', 'kproxy.demo', 'kproxy.client'} & set(sys.modules)\n"
        "for name in cli.list_commands(context): assert cli.get_command(context, name).help, name\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_module_is_missing_for_a_while_and_then_there() -> None:
    name = "xml.dom.pulldom"
    sys.modules.pop(name, None)
    with as_if_missing(name), pytest.raises(ImportError):
        importlib.import_module(name)
    assert importlib.import_module(name).__name__ == name


def test_a_module_that_is_imported_stays() -> None:
    with as_if_missing("click"):
        assert importlib.import_module("click") is click


@pytest.mark.parametrize("collects", [True, False])
def test_the_search_for_garbage_continues_after_imports_as_before_them(collects: bool) -> None:
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with quick_imports():
            assert not gc.isenabled()
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()
