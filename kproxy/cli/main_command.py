"""The commands and how they end. Imports are lazy: ``--help`` must not wait for the proxy's own modules."""

from collections.abc import Sequence
from typing import Any

import click

from kproxy import __version__
from kproxy.cli.flags import ConfigCommand, given_flags
from kproxy.cli.groups import Elsewhere, LazyGroup, as_if_missing, quick_imports
from kproxy.config import EXIT_CODES, ConfigError, ExitCode, load_with_sources
from kproxy.errors import KproxyError

_EXIT_CODES = "\b\nExit codes:\n" + "\n".join(f"  {code.value:3}  {text}" for code, text in EXIT_CODES.items())
_SOURCES = (
    "Every option can also be set in the file (bootstrap.servers: ...) and in the environment "
    "(KPROXY_BOOTSTRAP_SERVERS). A flag beats the environment, that beats the file."
)
_EXAMPLES = """\b
Examples:
  kproxy run --bootstrap-servers kafka-1:9092,kafka-2:9092
  kproxy run --bootstrap-servers kafka:9092 --listen :9092 --advertised-address gateway.example:9092
  KPROXY_BOOTSTRAP_SERVERS=kafka:9092 kproxy run --config kproxy.yaml --log-level debug"""

_ELSEWHERE = {
    "acl": Elsewhere("kproxy.cli.acl_commands", "acl", "Check rules of authorization, list and explain them."),
    "audit": Elsewhere(
        "kproxy.cli.audit_command", "audit", "Check topics for duplicates, gaps, torn and hanging transactions."
    ),
    "clients": Elsewhere("kproxy.cli.status_commands", "clients", "List the clients of a running kproxy."),
    "completion": Elsewhere("kproxy.cli.completion_command", "completion", "Print the completion script of a shell."),
    "config": Elsewhere(
        "kproxy.cli.config_commands", "config", "Write and check options; show and reload those in force."
    ),
    "credentials": Elsewhere(
        "kproxy.cli.credentials_command", "credentials", "Add, remove and list users that log in at kproxy."
    ),
    "demo": Elsewhere("kproxy.demo.demo_command", "demo", "Show a Kafka 0.9 client at work with Kafka 4.4."),
    "doctor": Elsewhere(
        "kproxy.cli.doctor_command", "doctor", "Check brokers, rights and options, and say what to do."
    ),
    "fleet": Elsewhere(
        "kproxy.cli.fleet_command", "fleet", "List all instances on the same brokers, and their legacy clients."
    ),
    "health": Elsewhere("kproxy.cli.health_command", "health", "Check the health of the kproxy on this host."),
    "lanes": Elsewhere(
        "kproxy.cli.status_commands", "lanes", "List kproxy's producer ids and the clients that use them."
    ),
    "log-level": Elsewhere(
        "kproxy.cli.config_commands", "log_level", "Show or set the log levels of a running kproxy."
    ),
    "pipeline": Elsewhere(
        "kproxy.cli.pipeline_commands", "pipeline", "Run pipelines on Spark, from a YAML file; exactly once."
    ),
    "sandbox": Elsewhere("kproxy.demo.sandbox", "sandbox", "Run a Kafka and kproxy here, to try clients with."),
    "status": Elsewhere("kproxy.cli.status_commands", "status", "Show what a running kproxy is doing."),
    "txn": Elsewhere("kproxy.cli.txn_commands", "txn", "Begin, decide and inspect transactions; print their log."),
    "webhook": Elsewhere(
        "kproxy.cli.webhook_command", "webhook", "Add kproxy to pods that ask for it, for Kubernetes."
    ),
}


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; no expected error shows a traceback."""
    try:
        result = cli.main(None if args is None else list(args), prog_name="kproxy", standalone_mode=False)
        return int(result or ExitCode.OK)
    except click.UsageError as error:
        _say([error.format_message(), *_hint(error)])
        return ExitCode.USAGE
    except click.ClickException as error:
        _say([error.format_message()])
        return error.exit_code
    except ConfigError as error:
        _say(error.problems)
        return ExitCode.USAGE
    except KproxyError as error:
        _say([str(error)])
        return int(getattr(error, "exit_code", ExitCode.FAILURE))
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED


def _say(lines: list[str]) -> None:
    for line in lines:
        click.echo(f"kproxy: {line}", err=True)


def _hint(error: click.UsageError) -> list[str]:
    if error.ctx is None:
        return []
    command = error.ctx.command
    if isinstance(command, click.Group) and not isinstance(error, click.NoSuchOption):
        return [f"valid commands: {', '.join(command.list_commands(error.ctx))}"]
    return [f"see: {error.ctx.command_path} --help"]


@click.group(cls=LazyGroup, elsewhere=_ELSEWHERE, invoke_without_command=True, epilog=_EXIT_CODES)
@click.option("--version", is_flag=True, help="Print the version and exit.")
@click.option("--json", "as_json", is_flag=True, help="With --version: as JSON.")
@click.pass_context
def cli(ctx: click.Context, version: bool, as_json: bool) -> None:
    """A Kafka-compatible proxy that gives idempotence and transactions to clients that have none."""
    if version:
        _print_version(as_json)
        ctx.exit()
    if as_json:
        raise click.UsageError("--json goes with --version here, or after the command", ctx)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _print_version(as_json: bool) -> None:
    if not as_json:
        click.echo(f"kproxy {__version__}")
        return
    import json
    import platform

    from kproxy.codec import accelerator

    told = {"version": __version__, "python": platform.python_version(), "system": platform.system()}
    click.echo(json.dumps(told | {"accelerator": accelerator.STATE}))


@cli.command(
    cls=ConfigCommand,
    params=[
        click.Option(
            ["--replace"],
            is_flag=True,
            help="Take over from the kproxy at handover.socket, if any, and from any process with this instance.id.",
        ),
        click.Option(
            ["--dry-run"], is_flag=True, help="Say what run would do at this cluster, and end; as doctor ends."
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="With --dry-run: print JSON."),
    ],
    epilog=f"{_EXAMPLES}\n\n{_EXIT_CODES}",
)
def run(replace: bool, dry_run: bool, as_json: bool, **params: Any) -> int:
    """Run the proxy until SIGTERM or SIGINT."""
    if as_json and not dry_run:
        raise click.UsageError("--json goes with --dry-run; log.format = json is for the log")
    flags, environment = given_flags(params), _environment()
    loaded = load_with_sources(flags, environment)
    if dry_run:
        from kproxy.cli.dry_run import print_dry_run

        return print_dry_run(loaded, as_json)
    # structlog would take them, for tracebacks in colour; kproxy's are plain.
    with quick_imports(), as_if_missing("rich", "colorama"):
        from kproxy.app import run as run_proxy

    return run_proxy(loaded, lambda: load_with_sources(flags, environment), replace=replace)


run.help = f"{run.help}\n\n{_SOURCES}"


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)
