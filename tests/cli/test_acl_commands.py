import json
from pathlib import Path

import pytest

from kproxy.cli import main

EXAMPLE = str(Path(__file__).parents[2] / "deploy" / "acl.yaml")
COLLECTOR = ["--client-id", "collector-1", "--operation", "Write", "--topic", "metrics.a"]
EXPLAIN = ["acl", "explain", "--acl-file", EXAMPLE]


def test_explain_says_which_rule_allows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*EXPLAIN, "--principal", "User:orders", "--operation", "write", "--topic", "orders"]) == 0
    out = capsys.readouterr().out
    assert "allowed: Write on Topic orders for User:orders" in out
    assert "the order service writes orders (line 7) allows it" in out


def test_explain_says_which_rule_denies_and_why_the_others_do_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--principal", "User:etl-1", "--operation", "Read", "--topic", "private.x", "--json"]
    assert main([*EXPLAIN, *asked]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["allowed"]
    assert found["rule"]["permission"] == "deny"
    assert [rule["why"] for rule in found["rules"]].count("applies") == 2


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        (["--principal", "User:orders", "--operation", "Write", "--transactional-id", "orders-7"], True),
        (["--principal", "User:etl-1", "--operation", "Describe", "--group", "etl-1"], True),
        (["--principal", "User:etl-1", "--operation", "Read", "--group", "other"], False),
        (["--principal", "User:monitoring", "--operation", "Describe", "--cluster"], True),
        (
            [
                "--host",
                "::ffff:192.0.2.17",
                "--client-id",
                "collector-1",
                "--operation",
                "Write",
                "--topic",
                "metrics.a",
            ],
            True,
        ),
        (["--host", "192.0.2.18", "--client-id", "collector-1", "--operation", "Write", "--topic", "metrics.a"], False),
        (["--super-users", "User:x;User:root", "--principal", "User:root", "--operation", "Alter", "--cluster"], True),
    ],
)
def test_the_exit_code_tells(asked: list[str], allowed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*EXPLAIN, *asked]) == (0 if allowed else 1)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--operation", "Write"], "give one of --topic, --group, --transactional-id and --cluster"),
        (["--operation", "Write", "--topic", "a", "--group", "b"], "give one of"),
        (["--operation", "Write", "--cluster"], "there is no Write on a Cluster, but Create"),
        (["--operation", "Wrote", "--cluster"], "'Wrote' is not one of"),
    ],
)
def test_a_wrong_question_is_one_line(asked: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*EXPLAIN, *asked]) == 2
    assert told in capsys.readouterr().err


def test_check_counts_rules_or_names_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acl", "check", EXAMPLE]) == 0
    assert "7 rules, no faults" in capsys.readouterr().out
    bad = tmp_path / "acl.yaml"
    bad.write_text("rules:\n  - permission: allow\n")
    assert main(["acl", "check", str(bad)]) == 2
    assert f"{bad}:2: rules[0].principals: is missing" in capsys.readouterr().err
    assert main(["acl", "check", str(bad), "--json"]) == 2
    assert not json.loads(capsys.readouterr().out)["ok"]


def test_list_shows_the_rules_about_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acl", "list", "--acl-file", EXAMPLE, "--principal", "User:etl-1", "--json"]) == 0
    assert [rule["line"] for rule in json.loads(capsys.readouterr().out)["rules"]] == [20, 27, 34]
    assert main(["acl", "list", "--acl-file", EXAMPLE, "--super-users", "User:root"]) == 0
    out = capsys.readouterr().out
    assert "Topic private. (prefixed)" in out
    assert "super users: User:root" in out


def test_help_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acl"]) == 0
    assert "explain" in capsys.readouterr().out
