from pathlib import Path

import pytest

from kproxy.config.identity_file import BrokerIdentity, load_identities
from kproxy.config.secrets import SecretLocation
from kproxy.config.sources import ConfigError

GOOD = """
identities:
  - principal: User:orders
    username: orders-at-kafka
    password.location: /etc/orders
  - {principal: "*", username: guest, password.location: "env:GUEST"}
"""


def test_by_principal(tmp_path: Path) -> None:
    file = tmp_path / "identities.yaml"
    file.write_text(GOOD)
    assert load_identities(file) == {
        "User:orders": BrokerIdentity("orders-at-kafka", SecretLocation(Path("/etc/orders"))),
        "*": BrokerIdentity("guest", SecretLocation(variable="GUEST")),
    }


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("other: 1", "identities: is missing"),
        ("identities: [{principal: orders, username: a, password.location: /a}]", "such as 'User:orders'"),
        ("identities: [{principal: 'User:a', username: a}]", "password.location: is missing"),
        ("identities: [{principal: 'User:a', password.location: /a}]", "username: is missing"),
        ("identities: [{principal: 'User:a', username: a, password.location: geheim}]", "never the secret itself"),
        ("identities: [{principal: 'User:a', username: a, password.location: off}]", "must not be off"),
        ("identities: [{principal: 'User:a', username: a, password.location: /a, pass: x}]", "unknown key"),
        (GOOD + GOOD.partition("identities:\n")[2], "'User:orders' is given twice"),
    ],
)
def test_what_is_wrong_is_reported_with_its_line(tmp_path: Path, text: str, fault: str) -> None:
    file = tmp_path / "identities.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as told:
        load_identities(file)
    assert fault in str(told.value)
    assert "geheim" not in str(told.value)
