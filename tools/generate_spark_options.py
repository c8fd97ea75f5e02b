"""Writes docs/spark-options.md from the table of options; with ``--check`` only tells whether it is up to date."""

import sys
from collections.abc import Iterable
from pathlib import Path

from kproxy.spark.option_table import (
    BOTH_NO_EFFECT,
    NO_EFFECT,
    REFUSED,
    SECURITY_REFUSED,
    SINK,
    SINK_NO_EFFECT,
    SINK_REFUSED,
    SOURCE,
    SparkOption,
)
from tools.one_page import write_or_check

PAGE = Path(__file__).parent.parent / "docs" / "spark-options.md"

_INTRODUCTION = """\
<!-- Made by `make generate` from kproxy/spark/option_table.py; edit that. -->
# Options of the Spark source and sink

Names and meanings are those of Spark's own Kafka connector; this page says what differs or is not taken. The options of
TLS and SASL are [here](spark.md#security).

An unknown or wrong option is an [error](spark.md#errors) that says what is valid.
"""


def render() -> str:
    """Return the whole page."""
    sections = [
        _INTRODUCTION,
        f"## Source\n\n{_full(SOURCE)}",
        f"### Taken by the source without effect\n\n{_short(_own(NO_EFFECT))}",
        f"### Refused by the source\n\n{_short(_own(REFUSED))}",
        f"## Sink\n\n{_full(SINK)}",
        f"### Taken by the sink without effect\n\n{_short(_own(SINK_NO_EFFECT))}",
        f"### Refused by the sink\n\n{_short(_own(SINK_REFUSED))}",
        f"## Taken by both without effect\n\n{_short(BOTH_NO_EFFECT)}",
        f"## Refused by both\n\n{_short(SECURITY_REFUSED)}",
    ]
    return "\n".join(sections)


def _own(options: Iterable[SparkOption]) -> list[SparkOption]:
    """Without those that source and sink have in common."""
    return [option for option in options if option not in (*SECURITY_REFUSED, *BOTH_NO_EFFECT)]


def _names(option: SparkOption) -> str:
    return ", ".join(f"`{name}`" for name in option.names)


def _full(options: Iterable[SparkOption]) -> str:
    rows = "\n".join(f"| {_names(option)} | {option.default} | {option.text} |" for option in options)
    return f"| option | default | meaning |\n|---|---|---|\n{rows}\n"


def _short(options: Iterable[SparkOption]) -> str:
    rows = "\n".join(f"| {_names(option)} | {option.text} |" for option in options)
    return f"| option | reason |\n|---|---|\n{rows}\n"


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a difference."""
    return write_or_check(PAGE, render(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
