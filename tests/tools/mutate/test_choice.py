"""Which tests are tried on a mutant, and in which order."""

from pathlib import Path

from tools.mutate.choice import Ran, choose, files_for, grouped
from tools.mutate.mutants import Module

SOURCE = "LIMIT = 3\n\ndef f(x):\n    return x + LIMIT\n\ndef g(x):\n    return x + 1\n"
PATH = "kproxy/dedup/m.py"
OWN, OTHER = "tests/dedup/test_m.py", "tests/dedup/test_a.py"
RAN = {
    f"{OTHER}::quick": Ran(0.1, {PATH: [4]}),
    f"{OTHER}::slow": Ran(8.0, {PATH: [4, 7]}),
    f"{OWN}::own": Ran(1.0, {PATH: [4]}),
    f"{OTHER}::beside": Ran(0.05, {PATH: [7]}),
    f"{OWN}::elsewhere": Ran(0.1, {"kproxy/dedup/n.py": [4]}),
}


def chosen(name: str, seconds: float = 20) -> list[str]:
    module = Module(PATH, SOURCE)
    mutant = next(one for one in module.mutants if one.name.startswith(name))
    return [node.partition("::")[2] for node in choose(mutant, module, RAN, seconds)]


def test_those_that_reach_the_statement_the_modules_own_first() -> None:
    assert chosen("f:") == ["own", "quick", "slow"]
    assert chosen("g:") == ["beside", "slow"]


def test_a_constant_is_reached_where_it_is_used_and_may_be_tested_by_itself() -> None:
    assert chosen("LIMIT:") == ["own", "elsewhere", "quick", "slow", "beside"]


def test_those_that_meet_what_makes_a_difference() -> None:
    module = Module(PATH, "def f(x):\n    return x and 1\n")
    (mutant,) = (one for one in module.mutants if one.name.startswith("f: drop `x`"))
    ran = {"a": Ran(1, {PATH: [2, "2.11-2.12 True"]}), "b": Ran(1, {PATH: [2, "2.11-2.12 False"]})}
    assert choose(mutant, module, ran, 20) == ["b"]


def test_the_time_is_bounded_but_one_is_tried() -> None:
    assert chosen("f:", 2) == ["own", "quick"]
    assert chosen("g:", 0.01) == ["beside"]


def test_files_of_a_module_its_own_first() -> None:
    files = files_for("kproxy/dedup/retry_rules.py")
    assert files[0] == Path("tests/dedup/test_retry_rules.py")
    assert Path("tests/dedup/test_producer_connection.py") in files
    assert len(files) == len(set(files))


def test_only_its_own_file_or_those_of_the_package_that_import_it() -> None:
    own = Path("tests/dedup/test_retry_rules.py")
    assert files_for("kproxy/dedup/retry_rules.py", ()) == [own]
    assert files_for("kproxy/dedup/retry_rules.py", ["views"]) == [own, Path("tests/txn/test_views.py")]
    importers = files_for("kproxy/txn/verdict.py", ())
    assert {file.parent for file in importers} == {Path("tests/txn")}
    assert set(importers) < set(files_for("kproxy/txn/verdict.py"))


def test_modules_of_one_package_are_tried_together() -> None:
    assert grouped(["a/x.py", "b/x.py", "a/y.py"]) == [["a/x.py", "a/y.py"], ["b/x.py"]]
