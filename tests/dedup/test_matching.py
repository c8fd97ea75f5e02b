"""Which records repeat records in doubt."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kproxy.budget import MATCHED_RECORD_STEPS, SEARCHED_RECORD_STEPS, RequestBudget
from kproxy.dedup import matching
from kproxy.dedup.digest import UNTIMED, Digest, Digests
from kproxy.dedup.matching import group, match, offset_of
from kproxy.dedup.retry_rules import Rules
from kproxy.dedup.unconfirmed import Stamp, UnconfirmedBatch

RULES = Rules(window=120.0, in_flight=5, client_timeout=60.0)
NOW = 1000.0


def records(text: str, time: int = 7) -> Digests:
    """One record for each letter."""
    return Digests.of(Digest(letter.encode() * 16, time) for letter in text)


def entry(text: str, offsets: Sequence[int], *, time: int = 7, sure: bool = True) -> UnconfirmedBatch:
    """A batch in doubt."""
    made = UnconfirmedBatch((b"t", 0), Stamp(5, 0, 0, offsets[0], len(text)), 1, sure=sure, clean=False, since=NOW)
    made.recall(records(text, time), list(offsets))
    return made


def records_of(one: UnconfirmedBatch) -> Digests:
    """What was read back."""
    assert one.digests is not None
    return one.digests


def found(text: str, *entries: UnconfirmedBatch, time: int = 7) -> list[int | None]:
    """The offset that each record is found at."""
    places = match(records(text, time), entries, RULES, NOW)
    if isinstance(places, UnconfirmedBatch):
        return list(places.offsets)
    return [None if place is None else place[0].offsets[place[1]] for place in places]


def test_a_batch_that_is_retried_is_found_whole() -> None:
    assert found("abc", entry("abc", [4, 5, 6])) == [4, 5, 6]


def test_what_is_new_is_not_found_and_the_rest_is() -> None:
    assert found("axc", entry("abc", [4, 5, 6])) == [4, None, 6]


def test_batches_joined_or_split_are_found() -> None:
    entries = (entry("ab", [4, 5]), entry("cd", [6, 7]))
    assert found("abcd", *entries) == [4, 5, 6, 7]
    assert found("b", *entries) == [5]
    assert found("cdab", *entries) == [6, 7, 4, 5]


def test_of_equal_records_the_newest_is_taken_and_each_only_once() -> None:
    entries = (entry("a", [4]), entry("a", [5]))
    assert found("a", *entries) == [5]
    assert found("aaa", *entries) == [None, 4, 5]


def test_inside_a_batch_the_order_counts_among_equal_records() -> None:
    assert found("aba", entry("aba", [4, 5, 6])) == [4, 5, 6]
    assert found("ab", entry("aba", [4, 5, 6])) == [4, 5]


def test_what_is_in_doubt_is_found_also_where_the_order_does_not_fit() -> None:
    """Of a request a e b e the last e repeated an older one, so that the log has e, then a e b."""
    assert None not in found("aebe", entry("e", [2]), entry("aeb", [4, 5, 6]))


def test_a_request_whose_records_lie_before_and_after_each_other_is_found() -> None:
    """Of a request a b c the b repeated an older record, so that the log has b a c."""
    assert found("abc", entry("b", [2]), entry("ac", [5, 6])) == [5, 2, 6]


def test_of_equal_records_that_do_not_fit_the_order_the_newest_is_taken_first() -> None:
    assert found("aab", entry("baa", [4, 5, 6])) == [5, 6, 4]


def test_a_record_without_a_time_is_the_newest_of_equal_ones_whatever_their_times() -> None:
    entries = (entry("a", [4], time=UNTIMED), entry("a", [5], time=8))
    assert found("a", *entries, time=UNTIMED) == [5]


def test_the_same_time_goes_before_another_one() -> None:
    entries = (entry("a", [4], time=7), entry("a", [5], time=8))
    assert found("a", *entries, time=7) == [4]


def test_another_time_is_another_record_where_the_first_was_perhaps_had() -> None:
    assert found("a", entry("a", [4], time=8, sure=False)) == [None]
    assert found("a", entry("a", [4], time=8, sure=True)) == [4]


def test_a_base_offset_is_returned_where_it_is_true_of_all() -> None:
    assert offset_of([4, 5, 6], whole=True) == 4
    assert offset_of([4, 6], whole=True) == -1
    assert offset_of([4, 5], whole=False) == -1
    assert offset_of([4, 6, 5, 7], whole=True) == -1
    assert offset_of([5, 4], whole=True) == -1


def test_places_are_grouped_by_entry_in_order() -> None:
    one, two = entry("ab", [4, 5]), entry("c", [6])
    assert group([(one, 1), (two, 0), (one, 0)]) == [(one, [0, 1]), (two, [0])]


def test_a_record_with_another_time_does_not_take_what_is_anothers() -> None:
    """An equal record came new, together with the retry of an earlier one that was surely not had."""
    together = Digests.of([*records("c", time=1), *records("c", time=2)])
    places = match(together, [entry("c", [4], time=1)], RULES, NOW)
    assert [place is not None for place in places] == [True, False]


def test_what_has_more_equal_records_than_are_compared_one_by_one_is_not_compared() -> None:
    held, steps = [entry("aabc", [4, 5, 6, 7])], 3 * 4 * SEARCHED_RECORD_STEPS + 2 * MATCHED_RECORD_STEPS
    budget = RequestBudget(0, 0, steps)
    assert match(records("aa"), held, RULES, NOW, budget) is not None
    assert match(records("aa"), held, RULES, NOW, budget) is None
    assert match(records("bc"), held, RULES, NOW, budget) is not None, "none equals another"
    assert match(records("aabc"), held, RULES, NOW, budget) is not None, "all in one"
    assert match(records("a"), held, RULES, NOW, RequestBudget(0, 0, 3 * SEARCHED_RECORD_STEPS)) is None
    assert match(records("x"), held, RULES, NOW, RequestBudget(0, 0, 3 * SEARCHED_RECORD_STEPS)) == [None]


@given(
    st.lists(st.tuples(st.text("abcd", min_size=1, max_size=5), st.booleans()), min_size=1, max_size=3),
    st.text("abcde", min_size=1, max_size=5),
)
def test_records_of_which_none_equals_another_are_matched_as_one_by_one(
    in_doubt: list[tuple[str, bool]], sent: str
) -> None:
    entries = [entry(text, list(range(len(text))), time=7 if same else 8) for text, same in in_doubt]
    ours = records("".join(dict.fromkeys(sent)))
    wanted = set(ours.contents())
    alike = [one for one in entries if not wanted.isdisjoint(records_of(one).contents())]
    places = match(ours, entries, RULES, NOW)
    if isinstance(places, UnconfirmedBatch):
        places = [(places, at) for at in range(len(ours))]
    assert places == matching._Matching(ours, alike, wanted, RULES, NOW).match()
