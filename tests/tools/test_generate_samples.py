"""The sample files are what kproxy reads, and the schema takes them and refuses what kproxy refuses."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kproxy.config import Address, Config, load, options
from tools import generate_samples

SCHEMA = json.loads(generate_samples.render_schema())


def test_the_files_are_up_to_date() -> None:
    assert generate_samples.main(["--check"]) == 0


def test_the_minimal_file_is_a_configuration() -> None:
    config = load({"config": str(generate_samples.MINIMAL)}, {})
    assert config.control_socket == Path("/run/kproxy/control.sock")
    jsonschema.validate(yaml.safe_load(generate_samples.MINIMAL.read_text(encoding="utf-8")), SCHEMA)


def test_every_option_is_in_the_full_file_with_its_default(tmp_path: Path) -> None:
    text = generate_samples.FULL.read_text(encoding="utf-8")
    assert set(re.findall(r"^#?([a-z.]+[a-z]):", text, re.MULTILINE)) == set(options(Config))
    path = tmp_path / "kproxy.yaml"
    path.write_text(re.sub(r"^#([a-z.]+: (?! # default))", r"\1", text, flags=re.MULTILINE), encoding="utf-8")
    jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf-8")), SCHEMA)
    brokers = (Address("kafka-1", 9092), Address("kafka-2", 9092))
    assert load({"config": str(path)}, {}) == Config(bootstrap_servers=brokers)


@pytest.mark.parametrize(
    "content",
    [
        {"log.level": "debug"},
        {"log": {"level.overrides": "net=debug", "format": "json"}},
        {"upstream": {"ssl": {"ca.location": "/ca.pem"}}},
        {"retry.window.ms": "2min", "buffer.memory": 1 << 20},
        {"deliver.codecs": {"old-*": {"lz4": "gzip"}}},
    ],
)
def test_what_kproxy_takes(content: dict[str, Any]) -> None:
    jsonschema.validate(content, SCHEMA)


@pytest.mark.parametrize("content", [{"log.levl": "debug"}, {"log": {"levl": "debug"}}, {"max.connections": 0}, []])
def test_what_kproxy_refuses(content: object) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, SCHEMA)
