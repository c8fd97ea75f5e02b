from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.txn.described import (
    Described,
    DescribedPart,
    Listed,
    Listing,
    Outcome,
    Stale,
    described_from,
    described_json,
    listed_from,
    listed_json,
    listing_from,
    listing_json,
)

NUMBERS = st.integers(-1, 2**63 - 1)
PARTS = st.builds(DescribedPart, st.text(), NUMBERS, NUMBERS, st.booleans())
OUTCOMES = st.builds(Outcome, st.booleans(), st.text(), NUMBERS)
STALE = st.none() | st.builds(Stale, st.none() | NUMBERS, st.text())
DESCRIBED = st.builds(
    Described,
    transactional_id=st.text(),
    state=st.text(),
    client_id=st.text(),
    producer_id=NUMBERS,
    producer_epoch=NUMBERS,
    started_ms=st.none() | NUMBERS,
    timeout_ms=NUMBERS,
    partitions=st.lists(st.tuples(st.text(), NUMBERS), max_size=3).map(tuple),
    groups=st.lists(st.text(), max_size=3).map(tuple),
    parts=st.lists(PARTS, max_size=3).map(tuple),
    instance_id=st.text(),
    last=st.none() | OUTCOMES,
    batch_ids=st.lists(st.text(), max_size=3).map(tuple),
    stale=STALE,
)
LISTED = st.builds(Listed, st.text(), st.text(), st.text(), NUMBERS, NUMBERS, st.none() | NUMBERS, st.text(), NUMBERS)


@settings(deadline=None)
@given(DESCRIBED)
def test_a_description_comes_back_as_it_was(found: Described) -> None:
    assert described_from(described_json(found)) == found


@settings(deadline=None)
@given(LISTED)
def test_a_row_comes_back_as_it_was(row: Listed) -> None:
    assert listed_from(listed_json(row)) == row


@settings(deadline=None)
@given(LISTED)
def test_what_a_newer_one_says_beside_is_passed_over(row: Listed) -> None:
    assert listed_from(listed_json(row) | {"novelty": 1}) == row


@settings(deadline=None)
@given(DESCRIBED)
def test_an_older_one_does_not_say_which_batches_were_committed_or_how_old_it_is(found: Described) -> None:
    told = described_json(found)
    del told["batch_ids"], told["stale"]
    assert described_from(told) == found._replace(batch_ids=(), stale=None)


@settings(deadline=None)
@given(st.lists(LISTED, max_size=3), STALE)
def test_a_list_comes_back_as_it_was(rows: list[Listed], stale: Stale | None) -> None:
    told = listing_json(Listing(rows, stale))
    found = listing_from(told)
    assert (found, found.stale) == (rows, stale)
    del told["stale"]
    older = listing_from(told)
    assert (older, older.stale) == (rows, None)


@settings(deadline=None)
@given(DESCRIBED)
def test_a_part_of_an_older_one_does_not_say_when_it_expires(found: Described) -> None:
    told = described_json(found)
    for part in told["parts"]:
        del part["expires_ms"]
    parts = tuple(part._replace(expires_ms=None) for part in found.parts)
    assert described_from(told) == found._replace(parts=parts)
