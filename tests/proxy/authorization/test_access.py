from kproxy.proxy.authorization.access import _DECISION_BYTES, _MOST_BYTES, LONGEST_NAME
from kproxy.proxy.authorization.acl_rules import Operation, ResourceType, Rules
from tests.proxy.authorization.screening import Screened, allow

_TOPIC = ResourceType.TOPIC


def test_all_connections_of_a_subject_share_what_is_decided_within_a_bound_of_bytes() -> None:
    screened = Screened("Read t:a")
    access, decided = screened.access, screened.policy.decided
    for number in range(100_000):
        assert access.sees(Operation.READ, _TOPIC, f"a{number:0200}")
        assert decided.size <= _MOST_BYTES
    assert decided.size > _MOST_BYTES // 8
    assert access.sees(Operation.READ, _TOPIC, "a")
    assert not access.sees(Operation.READ, _TOPIC, "b")


def test_a_decision_about_a_long_name_is_not_remembered_and_its_refusal_shows_the_beginning() -> None:
    screened = Screened("Read t:a")
    before = screened.policy.decided.size
    assert screened.access.sees(Operation.READ, _TOPIC, "a" * (LONGEST_NAME + 1))
    assert not screened.access.may(Operation.READ, _TOPIC, "b" * 32_767)
    assert screened.policy.decided.size <= before + _DECISION_BYTES
    assert [refusal.name for _, refusal in screened.told] == ["b" * LONGEST_NAME]


def test_what_is_decided_by_old_rules_does_not_count_when_others_are_in_force() -> None:
    screened = Screened("Read t:a")
    access = screened.access
    screened.policy.use(Rules(allow("Read t:b")))
    assert access.sees(Operation.READ, _TOPIC, "a")  # the request at hand is judged by one set of rules
    assert access.renew("User:a", "client")
    assert not access.sees(Operation.READ, _TOPIC, "a")
    assert access.sees(Operation.READ, _TOPIC, "b")
