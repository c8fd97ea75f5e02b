"""The table of log shippers says what their trials found."""

import pytest

from tools import generate_agents
from tools.generate_agents import BEGIN, END, drawn, readme_drawn, short_table, table
from verification.agents.results import Result, read


def test_a_row_has_the_copies_of_each_kind_and_what_the_program_needs() -> None:
    results = read()
    killed = Result("2026-01-02", "9", "5.0.0", 50_000, 1_234, 0)
    results["kcat"] = {**results["kcat"], "killed": killed, "restarted": killed._replace(missing=7)}
    [row] = [line for line in table(results).splitlines() if line.startswith("| kcat")]
    assert "| killed: 1,234; restarted: 1,234, and 7 lost |" in row
    assert "without it, it ends" in row
    assert row.endswith("| 2026-01-02, Kafka 4.3.0 and 5.0.0 |")


def test_a_program_without_copies_in_any_trial_through_kproxy_has_one_zero() -> None:
    [row] = [line for line in table(read()).splitlines() if line.startswith("| syslog-ng")]
    assert "| 50,000 | 12,550 | 0 | `flags(flow-control)` |" in row


def test_the_short_table_has_a_program_with_fewer_lines_by_name_and_number() -> None:
    rows = short_table(read()).splitlines()
    assert "| rsyslog `omkafka` | 14,469 | 0 |" in rows
    assert "| collectd `write_kafka`, 10,000 lines | 5,647 | 0 |" in rows
    assert "| MirrorMaker 1 | refused by Kafka 4 | 0 |" in rows


def test_a_program_that_can_not_run_without_kproxy_says_why() -> None:
    assert "| MirrorMaker 1 of Kafka 0.8.2.2 | 50,000 | refused by Kafka 4 |" in table(read())


def test_the_page_needs_a_place_for_the_table_and_every_trial() -> None:
    assert drawn(f"a\n{BEGIN}\nold\n{END}\nb", read()).count("| kcat") == 1
    assert readme_drawn(f"a\n{BEGIN}\nold\n{END}\nb", read()).count("| kcat") == 1
    for draw in (drawn, readme_drawn):
        with pytest.raises(ValueError, match="has no place"):
            draw("a", read())
    with pytest.raises(ValueError, match="not run yet: rsyslog direct"):
        drawn(f"{BEGIN}\n{END}", {})


def test_the_table_of_the_docs_is_up_to_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate_agents.main(["--check"]) == 0
    monkeypatch.setattr(generate_agents, "read", dict)
    assert generate_agents.main(["--check"]) == 1
    assert "not run yet" in capsys.readouterr().err
