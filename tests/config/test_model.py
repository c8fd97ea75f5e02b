import dataclasses

import pytest

from kproxy.config import Address, Config, DeliverRule, options
from kproxy.config.values import IsolationRule
from kproxy.proxy.coordinator_rules import Home, HomeRule, home_of

SERVERS = (Address("kafka", 9092),)


def test_direct_construction_has_all_defaults() -> None:
    config = Config(bootstrap_servers=SERVERS)
    assert config.listen == ("127.0.0.1", 19092)
    assert config.max_frame_bytes == 104857600
    assert config.instance_id


def test_config_is_frozen() -> None:
    config = Config(bootstrap_servers=SERVERS)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.http = None  # type: ignore[misc]


def test_broker_ports_follow_the_listen_port() -> None:
    config = Config(bootstrap_servers=SERVERS, listen=Address("127.0.0.1", 9000))
    assert config.broker_port_range == range(9001, 9101)


def test_broker_ports_are_any_with_an_ephemeral_listen_port() -> None:
    assert not Config(bootstrap_servers=SERVERS, listen=Address("127.0.0.1", 0)).broker_port_range


def test_broker_ports_end_with_the_last_port() -> None:
    config = Config(bootstrap_servers=SERVERS, listen=Address("127.0.0.1", 65530))
    assert config.broker_port_range == range(65531, 65536)


def test_given_broker_ports_win() -> None:
    assert Config(bootstrap_servers=SERVERS, broker_ports=range(5, 8)).broker_port_range == range(5, 8)


def test_first_rule_that_matches_decides_the_transcoding() -> None:
    rules = (DeliverRule("old-*", ((3, 1),)), DeliverRule("old-x", ((2, 1),)), DeliverRule("", ((4, 0),)))
    config = Config(bootstrap_servers=SERVERS, deliver_codecs=rules)
    assert config.transcode("old-x") == {3: 1}
    assert config.transcode("OLD-x") == {}
    assert config.transcode(None) == config.transcode("") == {4: 0}


def test_two_known_clients_are_helped_by_default() -> None:
    config = Config(bootstrap_servers=SERVERS)
    assert config.transcode("kafka-node-client") == {3: 1}
    assert config.transcode("no-kafka-client") == {2: 1, 3: 1}
    assert config.transcode("anything else") == {}


def test_the_first_rule_that_fits_a_transactional_id_is_its_home() -> None:
    rules = (HomeRule("orders-*", Home.KPROXY), HomeRule("orders-1", Home.BROKER))
    config = Config(bootstrap_servers=SERVERS, transactions_home=rules)
    assert home_of(config.transactions_home, "orders-1") is Home.KPROXY
    assert home_of(config.transactions_home, "other") is Home.AUTO
    assert home_of(Config(bootstrap_servers=SERVERS).transactions_home, "orders-1") is Home.AUTO


def test_the_first_rule_that_fits_a_client_says_what_it_reads() -> None:
    rules = (IsolationRule("go-*", "read_committed"), IsolationRule("*", "read_uncommitted"))
    config = Config(bootstrap_servers=SERVERS, isolation_level_overrides=rules)
    assert config.committed_for("go-1") is True
    assert config.committed_for("") is False
    assert Config(bootstrap_servers=SERVERS).committed_for("go-1") is None


@pytest.mark.parametrize("name", options(Config))
def test_every_option_is_complete(name: str) -> None:
    entry = options(Config)[name]
    assert entry.reason.endswith(".")
    assert entry.group
    assert entry.kind.label
    assert entry.required or entry.default_text
    default = next(field.default for field in dataclasses.fields(Config) if field.name == entry.attribute)
    if isinstance(default, int) and not isinstance(default, bool):
        assert entry.kind.unit, "a number needs a unit"
        assert entry.kind.parse(str(default)) == default
