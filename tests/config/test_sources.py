from pathlib import Path

import pytest

from kproxy.config import Address, Config, ConfigError, DeliverRule, load, load_with_sources

REQUIRED = {"bootstrap.servers": "kafka:9092"}


def problems_of(flags: dict[str, str], environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(flags, environ or {})
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


def write(directory: Path, text: str) -> str:
    path = directory / "kproxy.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_defaults() -> None:
    assert load(REQUIRED, {}) == Config(bootstrap_servers=(Address("kafka", 9092),))


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    path = write(tmp_path, "listen: file:1\nhttp: file:2\ninstance.id: file\n")
    environ = {"KPROXY_LISTEN": "environment:3", "KPROXY_HTTP": "environment:4"}
    loaded = load_with_sources({**REQUIRED, "config": path, "listen": "flag:5"}, environ)
    config = loaded.config
    assert (config.listen, config.http, config.instance_id) == (("flag", 5), ("environment", 4), "file")
    assert loaded.sources["listen"] == "flag --listen"
    assert loaded.sources["http"] == "environment KPROXY_HTTP"
    assert loaded.sources["instance.id"] == f"file {path}"
    assert loaded.sources["log.level"] == "default"


def test_file_from_the_environment(tmp_path: Path) -> None:
    path = write(tmp_path, "bootstrap.servers: [a:1, 'b:2']\n")
    assert load({}, {"KPROXY_CONFIG": path}).bootstrap_servers == (("a", 1), ("b", 2))


def test_file_may_nest_and_keeps_text_as_text(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
bootstrap: {servers: kafka:9092}
http: off
instance.id: 010
max.in.flight.per.partition: 3
idempotence: {enable: no}
log:
  level: debug
deliver:
  codecs:
    "old.*": {lz4: gzip}
""",
    )
    config = load({"config": path}, {})
    assert config.http is None
    assert config.instance_id == "010"
    assert config.max_in_flight_per_partition == 3
    assert config.idempotence_enable is False
    assert config.log_level == "debug"
    assert config.deliver_codecs == (DeliverRule("old.*", ((3, 1),)),)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_empty_file(tmp_path: Path, text: str) -> None:
    assert load({**REQUIRED, "config": write(tmp_path, text)}, {}).log_level == "info"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "is not valid YAML: line 1, column 5"),
        ("- a\n- b\n", "must hold lines of 'option: value'"),
        ("just text", "must hold lines of 'option: value'"),
        ("listen: a:1\nlisten: b:2\n", "line 2, column 1: 'listen' is given twice"),
        ("log.level: info\nlog: {level: debug}\n", "log.level is given twice"),
        ("? [a, b]\n: c\n", "is not valid YAML"),
        ("listen: &x [*x]\n", "is not valid YAML"),
        ("a: \x00", "is not valid YAML"),
    ],
)
def test_bad_file(tmp_path: Path, text: str, reason: str) -> None:
    [problem] = problems_of({**REQUIRED, "config": write(tmp_path, text)})
    assert reason in problem
    assert "\n" not in problem


def test_file_that_is_not_there(tmp_path: Path) -> None:
    path = str(tmp_path / "none.yaml")
    assert problems_of({"config": path}) == [f"cannot read the configuration file {path}: No such file or directory"]


def test_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "kproxy.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    assert problems_of({"config": str(path)}) == [f"the configuration file {path} is not UTF-8 text"]


def test_missing_bootstrap_servers_tells_all_ways_to_give_them() -> None:
    [problem] = problems_of({})
    for spelling in ("bootstrap.servers", "--bootstrap-servers", "KPROXY_BOOTSTRAP_SERVERS"):
        assert spelling in problem


def test_an_option_like_none_says_where_all_are_listed() -> None:
    problems = problems_of({"bootstrap.servers": "a:1"}, {"KPROXY_QQQ": "1"})
    assert problems == ["unknown option 'qqq' (environment KPROXY_QQQ); kproxy run --help lists all"]


def test_all_problems_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, "bootstrap.server: kafka:9092\nlog.level: loud\n")
    problems = problems_of({"config": path, "listen": "nowhere"}, {"KPROXY_MAX_CONNECTIONS": "0", "KPROXY_LISTN": "x"})
    text = "\n".join(problems)
    assert f"unknown option 'bootstrap.server' (file {path}); did you mean 'bootstrap.servers'?" in problems
    assert "unknown option 'listn' (environment KPROXY_LISTN); did you mean 'listen'?" in problems
    assert f"log.level = 'loud' (file {path}): must be one of debug, info, warning, error" in text
    assert "listen = 'nowhere' (flag --listen): must be HOST:PORT" in text
    assert (
        "max.connections = '0' (environment KPROXY_MAX_CONNECTIONS): must be a whole number from 1 to 1000000" in text
    )
    assert "bootstrap.servers is required" in text
    assert len(problems) == 6


def test_unknown_flag_name() -> None:
    assert (
        problems_of({**REQUIRED, "bogus": "1"})[0]
        == "unknown option 'bogus' (flag --bogus); kproxy run --help lists all"
    )


@pytest.mark.parametrize(
    "variable",
    [
        "KPROXY_URL",
        "KPROXY_PORT",
        "KPROXY_SERVICE_HOST",
        "KPROXY_SERVICE_PORT",
        "KPROXY_SERVICE_PORT_METRICS",
        "KPROXY_PORT_9092_TCP",
        "KPROXY_PORT_9092_TCP_ADDR",
        "KPROXY_METRICS_SERVICE_HOST",
        "KPROXY_METRICS_PORT_19644_TCP_PROTO",
        "KPROXY_CACHE",
        "PATH",
    ],
)
def test_variables_that_are_not_ours(variable: str) -> None:
    assert load(REQUIRED, {variable: "tcp://10.0.0.1:9092"}).listen == ("127.0.0.1", 19092)


def test_the_accelerators_switch_is_on_or_off() -> None:
    for said in ("on", "off"):
        assert load(REQUIRED, {"KPROXY_ACCELERATOR": said}).listen == ("127.0.0.1", 19092)
    with pytest.raises(ConfigError) as caught:
        load(REQUIRED, {"KPROXY_ACCELERATOR": "fast"})
    assert caught.value.problems == ["KPROXY_ACCELERATOR = 'fast' (environment): must be on or off"]


def test_problems_between_options_are_found() -> None:
    assert problems_of({"bootstrap.servers": "127.0.0.1:19092"})[0].endswith("kproxy would connect to itself")


def test_a_lower_bound_lowers_the_defaults_below_it() -> None:
    config = load({**REQUIRED, "buffer.memory": "1000000"}, {})
    assert (config.max_frame_bytes, config.connection_buffer_bytes, config.max_message_bytes) == (1_000_000,) * 3
