"""Topic names as Kafka accepts them."""

import pytest

from kproxy.codec.topic_names import is_legal_topic


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "__consumer_offsets", "x" * 249])
def test_a_name_of_letters_digits_dots_underscores_and_dashes_is_legal(name: str) -> None:
    assert is_legal_topic(name)
    assert is_legal_topic(name.encode())


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "a\n", "x" * 250])
def test_other_names_are_not(name: str) -> None:
    assert not is_legal_topic(name)
    assert not is_legal_topic(name.encode())


def test_bytes_that_are_no_text_are_no_name() -> None:
    assert not is_legal_topic(b"a\xff")
