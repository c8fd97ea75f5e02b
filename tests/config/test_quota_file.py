from pathlib import Path

import pytest

from kproxy.config import ConfigError
from kproxy.config.quota_file import load_quotas
from kproxy.proxy.quotas.quota_rules import Entity, Limit, Share

EXAMPLE = Path(__file__).parents[2] / "deploy" / "quotas.yaml"


def problems(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "quotas.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_quotas(file)
    return [line.partition("quotas.yaml")[2] for line in caught.value.problems]


def test_the_example_says_what_its_names_say() -> None:
    rules = load_quotas(EXAMPLE)
    assert rules.of("User:orders", "x")[Limit.REQUEST_RATE] == Share(20_000, Entity("User:orders", None))
    assert rules.of("User:orders", "x")[Limit.CONNECTIONS] == Share(200, Entity("User:orders", None))
    assert rules.of("User:etl-1", "backfill-7")[Limit.CONSUMER_BYTE_RATE].value == 2_097_152
    assert rules.of("User:ANONYMOUS", "collector-1")[Limit.CONNECTIONS].value == 200


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("quotas:\n- request_rate: 5\n", ":2: quotas[0]: says not for whom: give principal, client.id or both"),
        ("quotas:\n- principal: '*'\n", ":2: quotas[0]: limits nothing: give producer_byte_rate, consumer_byte_rate"),
        ("quotas:\n- principal: a\n  connections: 1\n", ":2: quotas[0].principal: 'a' must be TYPE:NAME"),
        ("quotas:\n- principal: '*'\n  connections: 0\n", "'0' must be a whole number from 1 up"),
        ("quotas:\n- principal: '*'\n  conections: 1\n  connections: 1\n", "did you mean 'connections'?"),
        ("quota: []\n", ":1: quotas: is missing: a list of quotas"),
    ],
)
def test_each_fault_is_reported_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    assert told in problems(tmp_path, text)[0]
