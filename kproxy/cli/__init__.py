"""The ``kproxy`` command."""

from kproxy.cli.main_command import main

__all__ = ["main"]
