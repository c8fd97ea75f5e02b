"""The manual page: all commands and options are in it, and groff has nothing to complain of."""

import subprocess

import click

from kproxy.cli.main_command import cli
from kproxy.config import Config, options
from tools.generate_man import render


def _page() -> str:
    command = ["groff", "-man", "-ww", "-Tascii", "-P-cbou", "-rLL=200n"]
    done = subprocess.run(command, input=render(), capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    return done.stdout


def test_groff_prints_all_commands_options_and_exit_codes() -> None:
    page = _page()
    for name in cli.list_commands(click.Context(cli)):
        assert f"kproxy {name}" in page
    for option in options(Config).values():
        assert f"{option.flag} " in page
    assert "kproxy txn commit" in page
    assert "EXIT STATUS" in page


def test_examples_keep_their_lines() -> None:
    assert "  kproxy run --bootstrap-servers kafka-1:9092,kafka-2:9092\n" in _page()
