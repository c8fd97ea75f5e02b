"""The option of the commands that start a broker: which one."""

from typing import Final

import click

broker_option: Final = click.option(
    "--broker",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "kafka", "fake"]),
    help="A real Kafka 4.4.0 (needs Java 17 or later, and Maven), the embedded fake broker, or the real one if it can.",
)
"""As ``open_broker`` takes it. In a module of its own, because ``--help`` must not import the brokers."""
