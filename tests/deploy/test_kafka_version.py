"""The Kafka that the compose file starts, and that the docs name, is the one that the demo and the sandbox start."""

import re
from pathlib import Path

import pytest

from kproxy.testing.kafka import DEFAULT_VERSION

_ROOT = Path(__file__).parents[2]
_STARTED = (
    "README.md",
    "deploy/compose.yaml",
    "docs/deploy.md",
    "docs/getting-started.md",
    "kproxy/cli/main_command.py",
    "kproxy/demo/broker_option.py",
    "kproxy/demo/demo_command.py",
)
"""Files that name no other Kafka 4 than the one that is started."""
_NAMED = re.compile(r"(?:Kafka |kafka:)(4\.[\d.]*\d)")


@pytest.mark.parametrize("name", _STARTED)
def test_the_kafka_that_is_started_is_named(name: str) -> None:
    named = set(_NAMED.findall((_ROOT / name).read_text(encoding="utf-8")))
    assert named
    assert named <= {DEFAULT_VERSION, DEFAULT_VERSION.rpartition(".")[0]}


def test_every_image_of_kafka_is_of_that_version() -> None:
    files = [path for folder in ("deploy", "docs") for path in (_ROOT / folder).rglob("*") if path.is_file()]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    assert {image for text in texts for image in re.findall(r"apache/kafka:(\S+)", text)} == {DEFAULT_VERSION}
