"""Groups of commands: one whose commands are imported when they are used, and those that print their help."""

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, NamedTuple

import click

from kproxy.config.values import suggest

_HELP_LIMIT: Final = 120


@contextmanager
def as_if_missing(*modules: str) -> Iterator[None]:
    """Makes imports of these modules within the block fail, so that libraries do without; not of those imported."""
    hidden = [module for module in modules if module not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for module in hidden:
            del sys.modules[module]


@contextmanager
def quick_imports() -> Iterator[None]:
    """Within the block nothing searches for cyclic garbage: imports leave none, but cause many searches."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def help_group(name: str, text: str, epilog: str) -> click.Group:
    """A group that prints its help, ``text``, when no command is given."""

    @click.pass_context
    def callback(ctx: click.Context) -> None:
        if ctx.invoked_subcommand is None:
            click.echo(ctx.get_help())

    return click.Group(name, help=text, epilog=epilog, invoke_without_command=True, callback=callback)


class Elsewhere(NamedTuple):
    """A command of another module, ``attribute`` in ``module``, and the line that ``--help`` of the group shows."""

    module: str
    attribute: str
    summary: str


class LazyGroup(click.Group):
    """A group with commands of its own, and ``elsewhere``: those of other modules, by name.

    ``--help`` imports none of these: it must not wait for Spark or a demo.
    """

    def __init__(self, *args: Any, elsewhere: Mapping[str, Elsewhere], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._elsewhere = elsewhere

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *self._elsewhere})

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. click.UsageError names the most similar one."""
        names = self.list_commands(ctx)
        if not args[0].startswith("-") and args[0] not in names:
            raise click.UsageError(f"no command {args[0]!r}{suggest(args[0], names)}", ctx)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported if need be; None if there is none of the name."""
        place = self._elsewhere.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        command = getattr(import_module(place.module), place.attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one line for each command, importing none."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._summary(name)) for name in self.list_commands(ctx)])

    def _summary(self, name: str) -> str:
        place = self._elsewhere.get(name)
        return place.summary if place else self.commands[name].get_short_help_str(_HELP_LIMIT)
