from kproxy.proxy.software import UNKNOWN, Software, SoftwareCounts


def test_connections_are_counted_by_software_while_they_last() -> None:
    counts = SoftwareCounts()
    first, second, silent = counts.came("sarama", "1.45"), counts.came("sarama", "1.45"), counts.came()
    assert counts.open == {Software("sarama", "1.45"): 2, UNKNOWN: 1}
    for software in (first, second, silent):
        counts.left(software)
    assert not counts.open


def test_random_names_are_counted_as_one_kind() -> None:
    counts = SoftwareCounts(most_kinds=2)
    told = [counts.came(f"bot-{number}", "1") for number in range(5)]
    assert counts.open == {("bot-0", "1"): 1, ("bot-1", "1"): 1, ("(other)", ""): 3}
    for software in told:
        counts.left(software)
    assert not counts.open


def test_a_long_name_is_cut() -> None:
    assert SoftwareCounts().came("x" * 1000, "1" * 1000) == ("x" * 128, "1" * 128)
