from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.config import values
from kproxy.config.values import (
    Address,
    DeliverRule,
    IsolationRule,
    Kind,
    Raw,
    choice,
    parse_address,
    pattern,
    show,
    whole_number,
)
from kproxy.proxy.applications import CommitRule
from kproxy.proxy.coordinator_rules import Home, HomeRule

ALL_KINDS: list[Kind[Any]] = [
    values.BOOLEAN,
    values.LISTEN_ADDRESS,
    values.OPTIONAL_LISTEN_ADDRESS,
    values.OPTIONAL_PATH,
    values.REACHABLE_ADDRESS,
    values.ADDRESSES,
    values.PORTS,
    values.DELIVER_RULES,
    values.HOME_RULES,
    values.ISOLATION_RULES,
    values.COMMIT_RULES,
    values.MAPPING_RULES,
    values.PATTERNS,
    values.PRINCIPALS,
    whole_number(1, 10, "ms"),
    choice("red", "green"),
    pattern("[a-z]+", "letters"),
]


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost:9092", "localhost", 9092),
        (" kafka-1.example.com:1 ", "kafka-1.example.com", 1),
        ("10.0.0.1:65535", "10.0.0.1", 65535),
        ("[::1]:9092", "::1", 9092),
        ("[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
        ("my_service:80", "my_service", 80),
    ],
)
def test_address(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)
    assert parse_address(show(parse_address(text))) == (host, port)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must be HOST:PORT"),
        ("localhost", "must be HOST:PORT"),
        (":9092", "neither a host name nor an IP"),
        ("localhost:", "must be HOST:PORT"),
        ("localhost:kafka", "must be HOST:PORT"),
        ("localhost:-1", "must be HOST:PORT"),
        ("localhost:0", "from 1 to 65535"),
        ("localhost:65536", "from 1 to 65535"),
        ("localhost:٣", "must be HOST:PORT"),
        ("::1:9092", "IPv6 address in brackets"),
        ("PLAINTEXT://localhost:9092", "without a scheme"),
        ("[localhost]:9092", "brackets are for IPv6"),
        ("[::g]:9092", "neither a host name nor an IP"),
        ("256.0.0.1:9092", "neither a host name nor an IP"),
        ("bad host:9092", "neither a host name nor an IP"),
        ("a,b:9092", "neither a host name nor an IP"),
    ],
)
def test_bad_address(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_address(text)


def test_addresses_from_text_and_list() -> None:
    wanted = (Address("a", 1), Address("b", 2))
    assert values.ADDRESSES.parse("a:1, b:2") == wanted
    assert values.ADDRESSES.parse(["a:1", "b:2", "a:1"]) == wanted


@pytest.mark.parametrize(
    ("raw", "reason"), [("a:1,b", "at 'b'"), ([], "one or more"), ([["a:1"]], "single"), ("", "HOST")]
)
def test_bad_addresses(raw: Raw, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        values.ADDRESSES.parse(raw)


def test_http_can_be_off() -> None:
    assert [values.OPTIONAL_LISTEN_ADDRESS.parse(text) for text in ("", "off", "none", "False")] == [None] * 4
    assert values.OPTIONAL_LISTEN_ADDRESS.parse("[::]:0") == ("::", 0)


def test_without_a_host_all_addresses_are_listened_on() -> None:
    address = values.LISTEN_ADDRESS.parse(":9092")
    assert (address, str(address)) == (("", 9092), ":9092")
    assert address.is_wildcard
    assert address.on_this_host == ("127.0.0.1", 9092)
    with pytest.raises(ValueError, match="port 0 needs a host"):
        values.LISTEN_ADDRESS.parse(":0")
    with pytest.raises(ValueError, match="neither a host name"):
        values.REACHABLE_ADDRESS.parse(":9092")


def test_path() -> None:
    assert [values.OPTIONAL_PATH.parse(text) for text in ("", "off", "/run/x.sock")] == [
        None,
        None,
        Path("/run/x.sock"),
    ]
    for text in ("run/x.sock", "~/x", "/a\0b"):
        with pytest.raises(ValueError, match="absolute path"):
            values.OPTIONAL_PATH.parse(text)


def test_clients_cannot_be_sent_to_a_wildcard() -> None:
    with pytest.raises(ValueError, match="wildcard"):
        values.REACHABLE_ADDRESS.parse("0.0.0.0:9092")


def test_ports() -> None:
    assert values.PORTS.parse("19093-19192") == range(19093, 19193)
    assert values.PORTS.parse("7 - 7") == range(7, 8)


@pytest.mark.parametrize("text", ["", "1", "0-5", "5-4", "1-65536", "a-b", "1-2-3", "-1-2"])
def test_bad_ports(text: str) -> None:
    with pytest.raises(ValueError, match="FIRST-LAST"):
        values.PORTS.parse(text)


@pytest.mark.parametrize("text", ["0", "11", "-1", "1.0", "1e3", "", "x", "9" * 5000, "٣"])
def test_number_out_of_bounds(text: str) -> None:
    with pytest.raises(ValueError, match="must be a whole number from 1 to 10"):
        whole_number(1, 10, "ms").parse(text)


def test_number_within_bounds() -> None:
    assert [whole_number(1, 10, "ms").parse(text) for text in ("1", " 10 ", "007")] == [1, 10, 7]


@pytest.mark.parametrize(
    ("unit", "text", "value"),
    [
        ("ms", "500ms", 500),
        ("ms", "10 s", 10_000),
        ("ms", "2min", 120_000),
        ("ms", "1D", 86_400_000),
        ("s", "1h", 3600),
        ("bytes", "64KiB", 65_536),
        ("bytes", "3mb", 3_000_000),
    ],
)
def test_durations_and_sizes_may_have_a_unit(unit: str, text: str, value: int) -> None:
    assert whole_number(1, 1 << 40, unit).parse(text) == value


@pytest.mark.parametrize(
    ("unit", "text"),
    [("ms", "1 week"), ("ms", "1.5s"), ("s", "10ms"), ("replicas", "3s"), ("bytes", "1s"), ("ms", "s")],
)
def test_a_unit_that_does_not_fit_is_refused(unit: str, text: str) -> None:
    with pytest.raises(ValueError, match="must be a whole number from 1 to"):
        whole_number(1, 1 << 40, unit).parse(text)


def test_booleans() -> None:
    assert [values.BOOLEAN.parse(text) for text in ("true", "Yes", "on")] == [True] * 3
    assert [values.BOOLEAN.parse(text) for text in ("false", "no", "OFF")] == [False] * 3
    with pytest.raises(ValueError, match="must be true or false"):
        values.BOOLEAN.parse("1")


def test_choice_suggests_the_nearest_word() -> None:
    assert choice("debug", "info").parse("INFO") == "info"
    with pytest.raises(ValueError, match="must be one of debug, info; did you mean 'info'"):
        choice("debug", "info").parse("inof")
    with pytest.raises(ValueError, match=r"must be one of debug, info$"):
        choice("debug", "info").parse("zzz")


def test_deliver_rules_from_text_and_mapping() -> None:
    wanted = (DeliverRule("old-*", ((3, 1), (2, 0))), DeliverRule("*", ((4, 1),)))
    assert values.DELIVER_RULES.parse('{"old-*": {lz4: gzip, snappy: none}, "*": {"zstd": "gzip"}}') == wanted
    assert values.DELIVER_RULES.parse({"old-*": {"lz4": "gzip", "snappy": "none"}, "*": {"zstd": "gzip"}}) == wanted
    assert values.DELIVER_RULES.parse("") == ()


def test_deliver_rules_can_be_shown_and_parsed_again() -> None:
    rules = (DeliverRule("old-*", ((3, 1), (2, 0))), DeliverRule("*", ((4, 1),)))
    assert values.DELIVER_RULES.parse(show(rules)) == rules


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("[a]", "must map"),
        ("text", "must map"),
        ("{", "must map"),
        ({"a": "gzip"}, "must map"),
        ({"a": {"lzo": "gzip"}}, "codec 'lzo' must be one of gzip, snappy, lz4, zstd"),
        ({"a": {"none": "gzip"}}, "codec 'none' must be one of"),
        ({"a": {"lz4": "gzpi"}}, "did you mean 'gzip'"),
        ({"a": {"lz4": ["gzip"]}}, "must be one of"),
    ],
)
def test_bad_deliver_rules(raw: Raw, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        values.DELIVER_RULES.parse(raw)


@pytest.mark.parametrize(
    ("raw", "rules"),
    [
        ("auto", (HomeRule("*", Home.AUTO),)),
        (" Broker ", (HomeRule("*", Home.BROKER),)),
        ("kproxy", (HomeRule("*", Home.KPROXY),)),
        ("orders-*=kproxy, *=broker", (HomeRule("orders-*", Home.KPROXY), HomeRule("*", Home.BROKER))),
        ("a=b=kproxy", (HomeRule("a=b", Home.KPROXY),)),
        ({"a*": "kproxy", "*": "auto"}, (HomeRule("a*", Home.KPROXY), HomeRule("*", Home.AUTO))),
    ],
)
def test_home_rules_can_be_parsed_shown_and_parsed_again(raw: Raw, rules: tuple[HomeRule, ...]) -> None:
    assert values.HOME_RULES.parse(raw) == rules
    assert values.HOME_RULES.parse(show(rules)) == rules


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("", "must be one of auto, broker, broker-fenced, kproxy"),
        ("kporxy", "did you mean 'kproxy'"),
        ("a=", "must be one of"),
        ("=kproxy", "must not be empty"),
        ("a=kproxy,", "must not be empty"),
        ({"a,b": "kproxy"}, "hold a comma"),
        ({"a": ["kproxy"]}, "must be one of"),
        (["a"], "such as orders"),
    ],
)
def test_bad_home_rules(raw: Raw, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        values.HOME_RULES.parse(raw)


@pytest.mark.parametrize(
    ("raw", "rules"),
    [
        ("", ()),
        ("{}", ()),
        ({}, ()),
        ("a-*=read_committed", (IsolationRule("a-*", "read_committed"),)),
        ({"a=b": "read_uncommitted", "*": " Read_Committed"}, (
            IsolationRule("a=b", "read_uncommitted"), IsolationRule("*", "read_committed"))),
    ],
)  # fmt: skip
def test_isolation_rules_can_be_parsed_shown_and_parsed_again(raw: Raw, rules: tuple[IsolationRule, ...]) -> None:
    assert values.ISOLATION_RULES.parse(raw) == rules
    assert values.ISOLATION_RULES.parse(show(rules)) == rules


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("a=commited", "did you mean 'read_committed'"),
        ("read_committed", "must not be empty"),
        (["a"], "such as dashboard"),
    ],
)
def test_bad_isolation_rules(raw: Raw, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        values.ISOLATION_RULES.parse(raw)


@pytest.mark.parametrize(
    ("raw", "rules"),
    [
        ("", ()),
        ("{}", ()),
        ({}, ()),
        ("etl-*", (CommitRule("etl-*"),)),
        (
            " a , b=group: g-* ,c=client:d",
            (CommitRule("a"), CommitRule("b", group="g-*"), CommitRule("c", consumer="d")),
        ),
        ({"a": "", "b": "group:g"}, (CommitRule("a"), CommitRule("b", group="g"))),
    ],
)
def test_commit_rules_can_be_parsed_shown_and_parsed_again(raw: Raw, rules: tuple[CommitRule, ...]) -> None:
    assert values.COMMIT_RULES.parse(raw) == rules
    assert values.COMMIT_RULES.parse(show(rules)) == rules


@pytest.mark.parametrize("raw", ["a,", "=group:g", "a=group", "a=group:", "a=topic:t", "a=g", ["a"], {"a": ["b"]}])
def test_bad_commit_rules(raw: Raw) -> None:
    with pytest.raises(ValueError, match="such as etl"):
        values.COMMIT_RULES.parse(raw)


@pytest.mark.parametrize(
    ("raw", "patterns"), [("", ()), ("{}", ()), ([], ()), ("a, b-*", ("a", "b-*")), (["a"], ("a",))]
)
def test_patterns_can_be_parsed_shown_and_parsed_again(raw: Raw, patterns: tuple[str, ...]) -> None:
    assert values.PATTERNS.parse(raw) == patterns
    assert values.PATTERNS.parse(show(patterns)) == patterns


@given(
    st.sampled_from(ALL_KINDS), st.recursive(st.text(), lambda leaf: st.lists(leaf) | st.dictionaries(st.text(), leaf))
)
def test_a_parser_raises_nothing_but_value_error(kind: Kind[Any], raw: Raw) -> None:
    try:
        kind.parse(raw)
    except ValueError as error:
        assert str(error)


def test_show() -> None:
    shown = [show(value) for value in (None, True, 5, "text", range(1, 4), Address("::1", 9), (Address("a", 1),), ())]
    assert shown == ["off", "true", "5", "text", "1-3", "[::1]:9", "a:1", "{}"]


def test_principals_are_joined_by_semicolons() -> None:
    parsed = values.PRINCIPALS.parse("User:admin; User:CN=ops,O=Example;")
    assert parsed == ("User:admin", "User:CN=ops,O=Example")
    assert values.PRINCIPALS.parse(show(parsed)) == parsed
    assert values.PRINCIPALS.parse(["User:admin"]) == ("User:admin",)
    assert values.PRINCIPALS.parse(show(values.PRINCIPALS.parse(""))) == ()
    for wrong in ("admin", {"User:a": "x"}, [["User:a"]]):
        with pytest.raises(ValueError, match="must be"):
            values.PRINCIPALS.parse(wrong)
