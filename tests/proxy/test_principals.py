import pytest

from kproxy.errors import RemoteProtocolError
from kproxy.proxy.principals import ANONYMOUS, DEFAULT_MAPPING, of_certificate, parse_mapping_rules, user
from tests.proxy.test_distinguished_name import Name, NameAttribute, NameOID, certificate, common

KAFKAS_EXAMPLE = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


def test_nobody_shows_a_certificate() -> None:
    assert of_certificate(None, DEFAULT_MAPPING) == ANONYMOUS == user("ANONYMOUS")


def test_by_default_the_whole_subject_is_the_name() -> None:
    subject = Name([NameAttribute(NameOID.ORGANIZATION_NAME, "Example, Inc."), common("alice")])
    assert of_certificate(certificate(subject), DEFAULT_MAPPING) == "User:CN=alice,O=Example\\, Inc."


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=kafka1,OU=ServiceUsers,O=Unknown,C=Unknown", "kafka1"),
        ("CN=Alice,OU=Admin,O=x,L=y,ST=z,C=DE", "alice@admin"),
        ("DC=x,cn=bob", "BOB"),
        ("UID=eve", "UID=eve"),
    ],
)
def test_the_first_rule_that_fits_makes_the_name(subject: str, name: str) -> None:
    made = [rule.apply(subject) for rule in parse_mapping_rules(KAFKAS_EXAMPLE)]
    assert next(each for each in made if each is not None) == name


def test_a_group_without_a_match_is_nothing_and_escapes_stand_for_themselves() -> None:
    (rule,) = parse_mapping_rules(r"RULE:CN=(a)?b\/.*/\$1-$1-\//")
    assert rule.apply("CN=b/c") == "$1--/"


def test_a_rule_without_default_refuses_all_others() -> None:
    rules = parse_mapping_rules("RULE:CN=(.*),O=x/$1/")
    with pytest.raises(RemoteProtocolError, match=r"fits the certificate of CN=eve$"):
        of_certificate(certificate(Name([common("eve")])), rules)


def test_what_is_no_certificate_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="no subject"):
        of_certificate(b"\x30\x00\x00", DEFAULT_MAPPING)


def test_no_rules_are_the_default() -> None:
    assert parse_mapping_rules("  ") == parse_mapping_rules("DEFAULT") == DEFAULT_MAPPING


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("RULE:CN=(.*)/$1", "must be RULE"),
        ("RULE:CN=(.*/$1/", "no regular expression"),
        ("RULE:CN=(.*)/$2/", "names group 2; the pattern has 1"),
        ("DEFAULT RULE:a/b/", "a comma must follow DEFAULT"),
        ("RULE:a/b/X", "a comma must follow RULE:a/b/"),
        ("default", "must be RULE"),
    ],
)
def test_a_rule_that_is_none_is_reported(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_mapping_rules(text)
