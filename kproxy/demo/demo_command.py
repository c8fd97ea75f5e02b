"""The `demo` command: options, signals, exit status."""

import sys

import click

from kproxy.demo.broker_option import broker_option
from kproxy.demo.failure import DemoFailed
from kproxy.demo.signals import end_on_signals
from kproxy.distribution import install_command


@click.command()
@click.option("--records", default=100_000, show_default=True, type=click.IntRange(1, 10**9), help="Records to send.")
@broker_option
@click.option("--keep", is_flag=True, help="Leave broker and proxy running at the end, until Ctrl-C.")
def demo(records: int, broker: str, keep: bool) -> None:
    """See a client of the Kafka 0.9 era refused by Kafka 4.4, then working through kproxy with nothing lost.

    Everything runs on this machine's loopback address and is removed at the end. Exit status 1 if a record was lost
    or doubled.
    """
    try:
        from kproxy.demo.story import tell  # here, for it needs the client library
    except ModuleNotFoundError as error:
        if error.name != "confluent_kafka":
            raise
        raise click.ClickException(f"the demo needs a Kafka client: {install_command('demo')}") from error
    end_on_signals()
    try:
        sys.exit(0 if tell(records=records, broker=broker, keep=keep) else 1)
    except DemoFailed as error:
        raise click.ClickException(str(error)) from error
