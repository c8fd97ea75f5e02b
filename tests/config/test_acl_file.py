from pathlib import Path

import pytest

from kproxy.config import ConfigError
from kproxy.config.acl_file import load_rules
from kproxy.proxy.authorization.acl_rules import Operation, PatternType, Resource, ResourceType, Subject

EXAMPLE = Path(__file__).parents[2] / "deploy" / "acl.yaml"


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "acl.yaml"
    file.write_text(text)
    return file


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_rules(written(tmp_path, text))
    return [line.partition("acl.yaml")[2] for line in caught.value.problems]


def test_a_rule_is_read_whole(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "rules:\n"
        "  - name: one\n"
        "    permission: Allow\n"
        "    principals: [User:a, User:b]\n"
        "    hosts: 10.0.0.0/8\n"
        "    client.ids: [x-*]\n"
        "    operations: [read, DescribeConfigs]\n"
        "    topics: [t-]\n"
        "    groups: g\n"
        "    pattern: prefixed\n",
    )
    (rule,) = load_rules(file).rules
    assert (rule.name, rule.line, rule.allows) == ("one", 2, True)
    assert rule.principals == ("User:a", "User:b")
    assert [host.text for host in rule.hosts] == ["10.0.0.0/8"]
    assert rule.client_ids == ("x-*",)
    assert rule.operations == {Operation.READ, Operation.DESCRIBE_CONFIGS}
    assert rule.resources == (
        Resource(ResourceType.TOPIC, "t-", PatternType.PREFIXED),
        Resource(ResourceType.GROUP, "g", PatternType.PREFIXED),
    )


def test_hosts_and_client_ids_need_not_be_given(tmp_path: Path) -> None:
    file = written(tmp_path, "rules:\n- permission: deny\n  principals: '*'\n  operations: All\n  cluster: true\n")
    (rule,) = load_rules(file).rules
    assert not rule.allows
    assert rule.is_about(Subject("User:a", "10.0.0.1", "")) is None
    assert rule.resources[0].type is ResourceType.CLUSTER


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("permission: alow", ":2: rules[0].permission: 'alow' must be allow or deny; did you mean 'allow'?"),
        ("principals: alice", ":3: rules[0].principals: 'alice' must be TYPE:NAME, such as 'User:alice'"),
        ("operations: Wrte", "did you mean 'Write'?"),
        ("operations: ClusterAction", "there is no ClusterAction on a Topic, but Read, Write"),
        ("topics: a*", ":2: rules[0]: 'a*' has a wildcard: that needs pattern: glob"),
        ("pattern: literl", "'literl' must be one of literal, prefixed, glob; did you mean 'literal'?"),
        ("hosts: 1/2", "'1/2' is no network, such as 10.0.0.0/8"),
        ("hots: x", "unknown key; did you mean 'hosts'?"),
        ("topics: []", "must not be empty"),
    ],
)
def test_each_fault_is_reported_with_its_line(tmp_path: Path, line: str, fault: str) -> None:
    given = {"permission": "allow", "principals": "User:a", "operations": "Read", "topics": "t"}
    key, _, value = line.partition(": ")
    text = "\n    ".join(f"{key}: {value}" for key, value in {**given, key: value}.items())
    (told,) = problems(tmp_path, f"rules:\n  - {text}\n")
    assert fault in told


def test_what_is_missing_is_reported(tmp_path: Path) -> None:
    assert problems(tmp_path, "rules:\n  - name: x\n") == [
        ":2: rules[0].permission: is missing",
        ":2: rules[0].principals: is missing: who is meant, such as User:alice or User:*",
        ":2: rules[0]: names no resource: give topics, groups, transactional.ids or cluster: true",
        ":2: rules[0].operations: is missing: what is meant, such as Read, or All",
    ]
    assert problems(tmp_path, "rulez: []\n") == [
        ":1: rules: is missing: a list of rules",
        ":1: rulez: unknown key; did you mean 'rules'?",
    ]


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
        load_rules(tmp_path / "none.yaml")
    assert problems(tmp_path, "rules: [\n")
    assert problems(tmp_path, "") == [": is empty"]


def test_no_rules_are_rules_that_allow_nothing(tmp_path: Path) -> None:
    about = load_rules(written(tmp_path, "rules: []\n")).of(Subject("User:a", "::1", ""))
    assert not about.decide(Operation.READ, ResourceType.TOPIC, "t").allowed


def test_the_example_says_what_its_names_say() -> None:
    rules = load_rules(EXAMPLE)
    orders, etl = Subject("User:orders", "10.0.0.1", "x"), Subject("User:etl-1", "10.0.0.1", "x")
    assert rules.of(orders).decide(Operation.WRITE, ResourceType.TOPIC, "orders").allowed
    assert not rules.of(orders).decide(Operation.READ, ResourceType.TOPIC, "orders").allowed
    assert rules.of(etl).decide(Operation.READ, ResourceType.TOPIC, "orders").allowed
    assert not rules.of(etl).decide(Operation.READ, ResourceType.TOPIC, "private.x").allowed
    assert not rules.of(etl._replace(host="11.0.0.1")).decide(Operation.READ, ResourceType.TOPIC, "orders").allowed
