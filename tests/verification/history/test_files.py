from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verification.history import (
    Commit,
    Kind,
    MalformedHistory,
    Operation,
    Outcome,
    Poll,
    Producer,
    Send,
    Source,
    decode,
    encode,
    read_history,
    write_history,
)

_NUMBERS = st.integers(0, 1 << 62)
_PLACE = (st.text(max_size=5), st.integers(0, 9))
_OPERATIONS = st.builds(
    Operation,
    process=st.text(min_size=1),
    kind=st.sampled_from(Kind),
    outcome=st.sampled_from(Outcome),
    invoke=_NUMBERS,
    complete=st.none() | _NUMBERS,
    sends=st.lists(st.builds(Send, *_PLACE, st.none() | _NUMBERS, st.text()), max_size=3).map(tuple),
    polls=st.lists(
        st.builds(Poll, *_PLACE, st.lists(st.tuples(_NUMBERS, st.text()), max_size=3).map(tuple)), max_size=2
    ).map(tuple),
    commits=st.lists(st.builds(Commit, *_PLACE, _NUMBERS), max_size=2).map(tuple),
    group=st.text(),
    final=st.booleans(),
    error=st.text(),
    asked=st.none() | _NUMBERS,
    transactional_id=st.text(),
    producer=st.none() | st.builds(Producer, _NUMBERS, st.integers(-1, 1 << 15)),
    delivered=st.none() | _NUMBERS,
    sources=st.lists(st.builds(Source, *_PLACE, _NUMBERS), max_size=2).map(tuple),
    uncommitted=st.booleans(),
)


@given(_OPERATIONS)
def test_an_operation_comes_back_as_it_was(operation: Operation) -> None:
    line = encode(operation)
    assert "\n" not in line
    assert decode(line) == operation


def test_a_file_holds_many_and_empty_lines_do_not_count(tmp_path: Path) -> None:
    operations = [Operation("p", Kind.SEND, Outcome.OK, at, sends=(Send("t", 0, at, "v"),)) for at in range(3)]
    path = tmp_path / "history"
    write_history(path, operations)
    path.write_text(path.read_text() + "\n\n")
    assert list(read_history(path)) == operations


def test_an_offset_of_minus_one_is_an_offset_not_told() -> None:
    line = '{"process": "p", "kind": "send", "outcome": "ok", "invoke": 0, "sends": [["t", 0, -1, "v"]]}'
    assert decode(line).sends == (Send("t", 0, None, "v"),)


@pytest.mark.parametrize(
    "line",
    ["", "[]", "{}", '{"process": "p", "kind": "dance", "outcome": "ok", "invoke": 1}', '{"kind": "send"', "7",
     '{"process": "p", "kind": "send", "outcome": "ok", "invoke": 0, "sends": [["t", 0]]}'],
)  # fmt: skip
def test_a_line_that_is_no_operation_is_refused_with_its_number(line: str, tmp_path: Path) -> None:
    with pytest.raises(MalformedHistory):
        decode(line)
    path = tmp_path / "history"
    path.write_text(encode(Operation("p", Kind.POLL, Outcome.OK, 1)) + f"\n{line or 'x'}\n")
    with pytest.raises(MalformedHistory, match=r"history:2: "):
        list(read_history(path))
