from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.control.json_schema import Schema, faults
from kproxy.control.schemas import ABORT, ABORT_MEMBER, BEGIN, COMMIT, DESCRIBED, LIST, PREPARE, PROBLEM

BODIES = [BEGIN, COMMIT, ABORT, PREPARE, ABORT_MEMBER]
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
OWNER = {"producer_id": 4000, "producer_epoch": 7}
KEYS = st.sampled_from(["client_id", "transactional_id", "timeout_ms", "batch_id", "members", "x"])


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ({"client_id": "loader"}, BEGIN),
        ({"transactional_id": "orders-1", "timeout_ms": 1}, BEGIN),
        ({"client_id": "a", "transactional_id": "x" * 1000, "timeout_ms": 2**31 - 1}, BEGIN),
        ({"owner": OWNER}, COMMIT),
        ({"batch_id": "7", "members": ["a", "b"]}, COMMIT),
        ({"owner": OWNER, "members": []}, ABORT),
        ({"owner": OWNER}, PREPARE),
        ({}, ABORT_MEMBER),
    ],
)
def test_what_is_right(value: object, schema: Schema) -> None:
    assert list(faults(value, schema)) == []


@pytest.mark.parametrize(
    ("value", "schema", "fault"),
    [
        ([], BEGIN, "the body must be object"),
        (None, ABORT_MEMBER, "the body must be object"),
        ({}, PREPARE, "owner is missing"),
        ({"members": []}, ABORT, "owner is missing"),
        ({}, BEGIN, "one of client_id, transactional_id must be given"),
        ({"client_id": 7}, BEGIN, "client_id must be string"),
        ({"client_id": None}, BEGIN, "client_id must be string"),
        ({"client_id": ""}, BEGIN, "client_id must have 1 to 1000 characters"),
        ({"client_id": "x" * 1001}, BEGIN, "client_id must have 1 to 1000 characters"),
        ({"client_id": "\ud800"}, BEGIN, "client_id has half a surrogate pair, which is no character"),
        ({"client_id": "a", "timeout_ms": 0}, BEGIN, "timeout_ms must be a whole number from 1 to 2147483647"),
        ({"client_id": "a", "timeout_ms": True}, BEGIN, "timeout_ms must be integer"),
        ({"client_id": "a", "timeout_ms": 1.5}, BEGIN, "timeout_ms must be integer"),
        ({"client_id": "a", "timeout": 1}, BEGIN, "'timeout' is none of the fields: " + ", ".join(BEGIN["properties"])),
        ({"members": "a"}, ABORT, "members must be array"),
        ({"members": ["a", ""]}, ABORT, "members[1] must have 1 to 1000 characters"),
        ({"members": ["a"] * 1001}, ABORT, "members must have at most 1000 entries"),
        ({"x": 1}, ABORT_MEMBER, "'x' is none of the fields: there are none"),
        ({"transactions": [{}]}, LIST, "transactional_id is missing"),
    ],
)
def test_what_is_wrong_is_said(value: object, schema: Schema, fault: str) -> None:
    assert fault in list(faults(value, schema))


def test_a_word_that_is_none_of_those_that_may_be() -> None:
    assert list(faults("red", {"type": "string", "enum": ["blue", "green"]}, "colour")) == [
        "colour must be one of blue, green"
    ]


@given(JSON | st.dictionaries(KEYS, JSON), st.sampled_from([*BODIES, LIST, DESCRIBED, PROBLEM]))
def test_whatever_comes_is_judged(value: object, schema: Schema) -> None:
    assert all(isinstance(fault, str) for fault in faults(value, schema))
