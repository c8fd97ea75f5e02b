from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kproxy.proxy.authorization.acl_rules import (
    ANY,
    CLUSTER_NAME,
    IMPLIED,
    SUPPORTED,
    HostPattern,
    Mismatch,
    Operation,
    PatternType,
    Resource,
    ResourceType,
    Rule,
    Rules,
    Subject,
    plain_address,
)

TOPIC = ResourceType.TOPIC
ALICE = Subject("User:alice", "10.0.0.1", "etl-1")
#: Examples have no deadline: other processes may use the processor.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
NAMES = st.text("ab.-", min_size=0, max_size=4)


def rule(
    allows: bool, *resources: Resource, operations: tuple[Operation, ...] = (Operation.READ,), **who: tuple[str, ...]
) -> Rule:
    return Rule(
        allows=allows,
        principals=who.get("principals", ("User:alice",)),
        hosts=tuple(map(HostPattern, who.get("hosts", ("*",)))),
        client_ids=who.get("client_ids", ("*",)),
        operations=frozenset(operations),
        resources=resources,
    )


def topic(name: str, pattern: PatternType = PatternType.LITERAL) -> Resource:
    return Resource(TOPIC, name, pattern)


def resources() -> st.SearchStrategy[Resource]:
    return st.builds(Resource, st.sampled_from(ResourceType), NAMES | st.just(ANY), st.sampled_from(PatternType))


def rules() -> st.SearchStrategy[list[Rule]]:
    one = st.builds(
        lambda allows, operations, about, who: rule(allows, *about, operations=tuple(operations), principals=(who,)),
        st.booleans(),
        st.lists(st.sampled_from(Operation), min_size=1, max_size=3),
        st.lists(resources(), min_size=1, max_size=3),
        st.sampled_from(["User:alice", "User:*", "User:bob"]),
    )
    return st.lists(one, max_size=6)


QUESTIONS = st.tuples(st.sampled_from([each for each in Operation if each is not Operation.ALL]), resources())


@UNHURRIED
@given(rules(), QUESTIONS, st.randoms(use_true_random=False))
def test_the_order_of_rules_makes_no_difference(
    given_rules: list[Rule], question: tuple[Operation, Resource], random: Random
) -> None:
    operation, asked = question
    shuffled = random.sample(given_rules, len(given_rules))
    decide = [
        Rules(each).of(ALICE).decide(operation, asked.type, asked.name).allowed for each in (given_rules, shuffled)
    ]
    some = [Rules(each).of(ALICE).decide_any(operation, asked.type).allowed for each in (given_rules, shuffled)]
    assert decide[0] == decide[1]
    assert some[0] == some[1]


@UNHURRIED
@given(rules(), QUESTIONS)
def test_a_denial_wins_and_takes_nothing_else(given_rules: list[Rule], question: tuple[Operation, Resource]) -> None:
    operation, asked = question
    denial = rule(False, Resource(asked.type, asked.name), operations=(operation,))
    before, after = Rules(given_rules).of(ALICE), Rules([*given_rules, denial]).of(ALICE)
    if asked.name != ANY or asked.type is ResourceType.CLUSTER:
        for other in Operation:
            if other not in (operation, Operation.ALL):
                told = [each.decide(other, asked.type, asked.name).allowed for each in (before, after)]
                assert told[0] == told[1]
    assert not after.decide(operation, asked.type, asked.name).allowed


@UNHURRIED
@given(rules(), QUESTIONS)
def test_what_no_rule_allows_is_denied_and_the_rule_named_is_the_one_that_decided(
    given_rules: list[Rule], question: tuple[Operation, Resource]
) -> None:
    operation, asked = question
    allowed, by = Rules(given_rules).of(ALICE).decide(operation, asked.type, asked.name)
    assert allowed == (by is not None and by.allows)
    applying = [one for one, miss in Rules(given_rules).explain(ALICE, operation, asked.type, asked.name) if not miss]
    assert (by in applying) if by is not None else not applying


@UNHURRIED
@given(rules(), QUESTIONS)
def test_who_may_on_a_resource_may_on_some(given_rules: list[Rule], question: tuple[Operation, Resource]) -> None:
    operation, asked = question
    about = Rules(given_rules).of(ALICE)
    if about.decide(operation, asked.type, asked.name).allowed:
        assert about.decide_any(operation, asked.type).allowed


@UNHURRIED
@given(NAMES, NAMES)
def test_prefixed_means_names_that_begin_so(prefix: str, name: str) -> None:
    assert topic(prefix, PatternType.PREFIXED).matches(TOPIC, name) == name.startswith(prefix)


@UNHURRIED
@given(resources(), resources(), NAMES)
def test_what_covers_another_resource_means_all_that_it_does(one: Resource, other: Resource, name: str) -> None:
    if one.covers(other) and other.matches(other.type, name):
        assert one.matches(other.type, name)


@pytest.mark.parametrize(("operation", "implied"), [(one, two) for one, all_ in IMPLIED.items() for two in all_])
def test_operations_imply_others_where_they_are_allowed_and_not_where_they_are_denied(
    operation: Operation, implied: Operation
) -> None:
    allowed = Rules([rule(True, topic("a"), operations=(operation,))]).of(ALICE)
    assert allowed.decide(implied, TOPIC, "a").allowed
    everything = rule(True, topic("a"), operations=(Operation.ALL,))
    denied = Rules([everything, rule(False, topic("a"), operations=(operation,))]).of(ALICE)
    assert denied.decide(implied, TOPIC, "a").allowed
    assert not denied.decide(operation, TOPIC, "a").allowed


def test_all_means_all() -> None:
    about = Rules([rule(True, topic(ANY), operations=(Operation.ALL,))]).of(ALICE)
    assert all(about.decide(operation, TOPIC, "x").allowed for operation in SUPPORTED[TOPIC])
    assert not about.decide(Operation.READ, ResourceType.GROUP, "x").allowed


def test_super_users_need_no_rule_and_mind_none() -> None:
    denied = rule(False, topic(ANY), operations=(Operation.ALL,), principals=("*",))
    found = Rules([denied], ["User:alice"])
    assert found.of(ALICE).decide(Operation.READ, TOPIC, "a") == (True, None)
    assert found.of(ALICE).decide_any(Operation.WRITE, TOPIC).allowed
    assert not found.of(ALICE._replace(principal="User:alicex")).decide(Operation.READ, TOPIC, "a").allowed


def test_some_topic_is_not_one_that_a_denial_covers() -> None:
    allowed = rule(True, topic("ab"), operations=(Operation.WRITE,))
    for denied, left in [
        (topic("ab"), False),
        (topic("a", PatternType.PREFIXED), False),
        (topic("*b", PatternType.GLOB), False),
        (topic(ANY), False),
        (topic("abc"), True),
        (topic("abc", PatternType.PREFIXED), True),
    ]:
        about = Rules([allowed, rule(False, denied, operations=(Operation.ALL,))]).of(ALICE)
        assert about.decide_any(Operation.WRITE, TOPIC).allowed is left, denied


def test_the_cluster_has_one_name() -> None:
    about = Rules([rule(True, Resource(ResourceType.CLUSTER, "any"), operations=(Operation.ALTER,))]).of(ALICE)
    assert about.decide(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME).allowed


@pytest.mark.parametrize(
    ("pattern", "host", "fits"),
    [
        ("*", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.11", False),
        ("10.0.0.0/8", "10.200.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.0/8", "::1", False),
        ("fd00::/8", "fd00::1", True),
        ("10.1.*", "10.1.2.3", True),
        ("localhost", "127.0.0.9", True),
        ("localhost", "::1", True),
        ("localhost", "10.0.0.1", False),
        ("10.0.0.0/8", "unix", False),
        ("localhost", "unix", False),
    ],
)
def test_hosts(pattern: str, host: str, fits: bool) -> None:
    assert HostPattern(pattern).matches(host) is fits


@pytest.mark.parametrize(
    ("host", "plain"),
    [("::ffff:10.0.0.1", "10.0.0.1"), ("fe80::1%eth0", "fe80::1"), ("::1", "::1"), ("unix", "unix")],
)
def test_addresses_have_one_spelling(host: str, plain: str) -> None:
    assert plain_address(host) == plain


def test_a_rule_is_for_those_whom_all_its_patterns_fit() -> None:
    narrow = rule(True, topic("a"), principals=("User:a*",), hosts=("10.0.0.0/8",), client_ids=("etl-*",))
    assert narrow.is_about(ALICE) is None
    assert narrow.is_about(ALICE._replace(principal="User:bob")) is Mismatch.PRINCIPAL
    assert narrow.is_about(ALICE._replace(host="11.0.0.1")) is Mismatch.HOST
    assert narrow.is_about(ALICE._replace(client_id="x")) is Mismatch.CLIENT_ID
    assert narrow.is_of(Operation.READ, TOPIC, "b") is Mismatch.RESOURCE
    assert narrow.is_of(Operation.WRITE, TOPIC, "a") is Mismatch.OPERATION
