from verification.network.outcome import Outcome, compare, compare_in_order


def test_equal_records_are_counted_each_for_itself() -> None:
    assert compare("aab", "aab", "aab") == Outcome(3, 3, 3, lost=0, doubled=0)
    assert compare("aab", "aab", "ab") == Outcome(3, 3, 2, lost=1, doubled=0)
    assert compare("aab", "aab", "aaab") == Outcome(3, 3, 4, lost=0, doubled=1)


def test_a_record_without_an_acknowledgement_is_not_lost_but_a_problem() -> None:
    outcome = compare("ab", "a", "a")
    assert (outcome.lost, outcome.problems) == (0, ("1 of 2 not acknowledged",))


def test_problems_are_named() -> None:
    outcome = compare("ab", "ab", "aa", faults=["x"])
    assert outcome.problems == ("1 lost", "1 doubled", "x")
    assert (outcome + outcome).problems == ("2 lost", "2 doubled", "x", "x")
    assert not compare("a", "a", "a").problems


def test_first_copies_after_a_higher_number_are_late() -> None:
    outcome = compare_in_order(range(5), range(5), [0, 3, 4, 1, 2, 1])
    assert (outcome.late, outcome.doubled) == (2, 1)
    assert outcome.problems == ("1 doubled", "2 late")
    assert compare_in_order(range(2), range(2), [1, 0], faults=["x"]).problems == ("1 late", "x")
