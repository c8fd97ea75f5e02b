"""``kproxy completion``: what a shell needs to complete commands and options."""

from typing import Final

import click
from click.shell_completion import get_completion_class

from kproxy.config import ExitCode

_VARIABLE: Final = "_KPROXY_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "fish", "zsh"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Print the script that completes kproxy's commands and options in a shell.

    \b
    bash: kproxy completion bash > ~/.local/share/bash-completion/completions/kproxy
    fish: kproxy completion fish > ~/.config/fish/completions/kproxy.fish
    zsh:  kproxy completion zsh > a directory of $fpath, as _kproxy
    """
    maker = get_completion_class(shell)
    assert maker is not None
    click.echo(maker(ctx.find_root().command, {}, "kproxy", _VARIABLE).source())
    return ExitCode.OK
