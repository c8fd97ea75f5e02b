from typing import Any

import pytest

from kproxy.config import Address, Change, Config, ConfigError, Loaded, merge, options


def loaded(source: str = "default", **values: Any) -> Loaded:
    config = Config(bootstrap_servers=(Address("kafka", 9092),), **values)
    return Loaded(config, dict.fromkeys(options(Config), source))


def test_what_can_change_is_in_force_and_the_rest_waits() -> None:
    running, wanted = loaded("file a"), loaded("file b", max_connections=5, buffer_memory=1 << 30, fetch_max_bytes=2048)
    reload = merge(running, wanted)
    assert [(each.option.name, each.after) for each in reload.applied] == [
        ("max.connections", 5),
        ("fetch.max.bytes", 2048),
    ]
    assert [(each.option.name, each.before, each.after) for each in reload.waiting] == [
        ("buffer.memory", 128 << 20, 1 << 30)
    ]
    config, sources = reload.loaded.config, reload.loaded.sources
    assert (config.max_connections, config.fetch_max_bytes, config.buffer_memory) == (5, 2048, 128 << 20)
    assert (sources["max.connections"], sources["buffer.memory"], sources["listen"]) == ("file b", "file a", "file b")
    assert set(reload.unchanged) == set(options(Config)) - {"max.connections", "fetch.max.bytes", "buffer.memory"}


def test_what_was_reloaded_is_what_the_next_reload_begins_with() -> None:
    first = merge(loaded(), loaded(max_connections=5))
    assert merge(first.loaded, loaded(max_connections=5)).applied == ()
    assert [each.after for each in merge(first.loaded, loaded()).applied] == [10_000]


def test_a_value_that_only_a_restart_makes_possible_is_refused_with_it() -> None:
    wanted = loaded(max_frame_bytes=200 << 20, buffer_memory=256 << 20)
    with pytest.raises(ConfigError, match=r"a restart is needed for buffer\.memory") as caught:
        merge(loaded(), wanted)
    assert "max.frame.bytes = 209715200" in str(caught.value)


def test_options_that_decide_who_this_kproxy_is_never_change_while_it_runs() -> None:
    table = options(Config)
    for name in ("instance.id", "listen", "broker.ports", "transactions.home", "idempotence.enable", "control.socket"):
        assert table[name].change is Change.RESTART
