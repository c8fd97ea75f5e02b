"""The `demo` command: options, signals, exit status."""

import signal
import sys
from types import FrameType

import click

from kproxy.demo.failure import DemoFailed

_TERMINATED = 128 + signal.SIGTERM


@click.command()
@click.option("--records", default=100_000, show_default=True, type=click.IntRange(1, 10**9), help="Records to send.")
@click.option(
    "--broker",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "kafka", "fake"]),
    help="A real Kafka 4.3.0 (needs Java 17+ and Maven), the embedded fake, or the real one where it can be had.",
)
@click.option("--keep", is_flag=True, help="Leave broker and proxy running at the end, until Ctrl-C.")
def demo(records: int, broker: str, keep: bool) -> None:
    """See a client of the Kafka 0.9 era refused by Kafka 4.3, then working through kproxy with nothing lost.

    Everything runs on this machine's loopback address and is removed at the end. Exit status 1 if a record was lost
    or doubled.
    """
    try:
        from kproxy.demo.story import tell  # here, for it needs the client library
    except ModuleNotFoundError as error:
        if error.name != "confluent_kafka":
            raise
        raise click.ClickException("the demo needs a Kafka client: pip install 'kproxy[demo]'") from error
    signal.signal(signal.SIGTERM, _terminate)
    # A shell starts background jobs with SIGINT ignored; the demo should end on it all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.exit(0 if tell(records=records, broker=broker, keep=keep) else 1)
    except DemoFailed as error:
        raise click.ClickException(str(error)) from error


def _terminate(_number: int, _frame: FrameType | None) -> None:
    # As an exception, so that every `finally` on the way out stops what it started.
    sys.exit(_TERMINATED)
