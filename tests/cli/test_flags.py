import click
import pytest

from kproxy.cli import main
from kproxy.cli.flags import OPTIONS, ConfigCommand, given_flags
from kproxy.config import Config, ExitCode, options


@pytest.fixture
def command() -> ConfigCommand:
    """A command that gives back its parameters."""
    return ConfigCommand("try", callback=lambda **params: params)


def test_help_has_every_option_with_default_unit_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == ExitCode.OK
    out = capsys.readouterr().out
    # Lines may end within a word, where it has a hyphen or is long.
    text = "".join(out.split())
    for entry in options(Config).values():
        default = "required" if entry.required else f"default: {entry.default_text} {entry.kind.unit}".strip()
        assert "".join(f"{entry.flag} {entry.kind.metavar} {entry.reason} [{default}]".split()) in text
    assert "Examples:" in out
    assert "Exit codes:" in out


def test_the_help_has_one_section_for_each_group_in_the_order_of_the_table(command: ConfigCommand) -> None:
    lines = command.get_help(click.Context(command)).splitlines()
    groups = dict.fromkeys(entry.group for entry in OPTIONS.values())
    sections = [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert sections == ["Options", *groups]


def test_only_what_was_given_is_passed_on_unparsed_by_dotted_name(command: ConfigCommand) -> None:
    arguments = ["--listen", "no address", "--max-frame-bytes=many", "--http", "", "--config", "a.yaml"]
    params = command.main(arguments, standalone_mode=False)
    assert set(params) == {entry.attribute for entry in OPTIONS.values()} | {"config"}
    assert given_flags(params) == {
        "listen": "no address",
        "max.frame.bytes": "many",
        "http": "",
        "config": "a.yaml",
    }


def test_nothing_given_is_nothing(command: ConfigCommand) -> None:
    assert given_flags(command.main([], standalone_mode=False)) == {}


def test_a_command_may_have_parameters_of_its_own() -> None:
    own = click.Option(["--json", "as_json"], is_flag=True)
    command = ConfigCommand("try", params=[own], callback=lambda **params: params)
    params = command.main(["--json", "--log-level", "debug"], standalone_mode=False)
    assert params.pop("as_json") is True
    assert given_flags(params) == {"log.level": "debug"}
