"""Topic names as Kafka accepts them."""

import pytest

from kproxy.testing.fake_broker.topics import legal_topic_name


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "__consumer_offsets", "x" * 249])
def test_a_name_of_letters_digits_dots_underscores_and_dashes_is_legal(name: str) -> None:
    assert legal_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "a\n", "x" * 250])
def test_other_names_are_not(name: str) -> None:
    assert not legal_topic_name(name)
