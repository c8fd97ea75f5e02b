"""The mutants of a module have stable names, and each is compiled by itself."""

from typing import Any

from tools.mutate.mutants import Module, Unit, function_code

SOURCE = """\
LIMIT = 3

class Counter:
    def __init__(self, start: int = 0) -> None:
        self.count = start

    @property
    def full(self) -> bool:
        return self.count >= LIMIT

def outer(xs):
    def inner(x):
        return x > 0
    return [x for x in xs if inner(x)]
"""


def module() -> Module:
    return Module("counter.py", SOURCE)


def run(name: str) -> dict[str, Any]:
    """The module's globals with one mutant."""
    mutant = next(one for one in module().mutants if one.name == name)
    own = module()
    found: dict[str, Any] = {}
    exec(own.code(next(one for one in own.mutants if one == mutant)), found)
    return found


def test_names_say_where_and_what() -> None:
    assert [mutant.name for mutant in module().mutants] == [
        "LIMIT: 3 becomes 4",
        "Counter.__init__: 0 becomes 1",
        "Counter.__init__: delete `self.count = start`",
        "Counter.full: `self.count >= LIMIT` becomes `self.count > LIMIT`",
        "outer.inner: `x > 0` becomes `x >= 0`",
        "outer.inner: 0 becomes 1",
        "outer: no filter `inner(x)`",
    ]


def test_equal_changes_in_one_function_are_numbered() -> None:
    found = [mutant.name for mutant in Module("m.py", "def f(x):\n    return x + 1, 1\n").mutants]
    assert found[-2:] == ["f: 1 becomes 2", "f: 1 becomes 2 (2)"]


def test_each_mutant_has_its_one_change() -> None:
    assert run("outer.inner: `x > 0` becomes `x >= 0`")["outer"]([-1, 0, 1]) == [0, 1]
    assert run("Counter.__init__: 0 becomes 1")["Counter"]().count == 1
    assert run("LIMIT: 3 becomes 4")["Counter"](3).full is False
    assert run("outer: no filter `inner(x)`")["Counter"](3).full is True


def test_what_runs_at_import_belongs_to_no_function() -> None:
    units = {mutant.name.split(":")[0]: mutant.unit for mutant in module().mutants[:2]}
    assert units == {"LIMIT": None, "Counter.__init__": None}
    assert module().mutants[3].unit == Unit("Counter.full", 7)  # the line of its decorator
    assert module().mutants[4].unit == Unit("outer", 11)


def test_the_code_of_a_function_is_found_in_that_of_its_module() -> None:
    code = function_code(module().code(module().mutants[0]), Unit("Counter.full", 7))
    assert code is not None
    assert code.co_name == "full"
    assert function_code(code, Unit("missing", 1)) is None


def test_where_a_name_is_used() -> None:
    assert {1, 9} <= module().lines_that_mention(["LIMIT"])
    assert 5 not in module().lines_that_mention(["LIMIT"])


def test_a_private_constant_that_only_functions_read_can_be_changed_in_a_loaded_module() -> None:
    source = "_A = 1\n_B = 2\nC = _B\n\nclass D:\n    _E = 3\n\ndef f(x=C):\n    return _A\n"
    own = Module("m.py", source)
    codes = {mutant.name: own.constant(mutant) for mutant in own.mutants}
    assert [name for name, code in codes.items() if code is not None] == ["_A: 1 becomes 2"]
    found: dict[str, Any] = {}
    exec(source, found)
    exec(codes["_A: 1 becomes 2"] or "", found)
    assert found["f"]() == 2


def test_a_time_or_a_size_is_left_alone() -> None:
    source = "_WAIT_S = 10.0\nMOST_IDS = 5\n_READ_BYTES = 1 << 20\n_TRIES = 3\n\ndef f(x=1):\n    return x\n"
    assert [mutant.name for mutant in Module("m.py", source).mutants] == ["_TRIES: 3 becomes 4", "f: 1 becomes 2"]


def test_the_source_of_a_mutant_is_the_function_around_it() -> None:
    before = {mutant.name: mutant.source for mutant in module().mutants}
    edited = Module("counter.py", SOURCE.replace("LIMIT = 3", "# moved\nLIMIT = 5").replace("x > 0", "x > 1"))
    after = {mutant.name: mutant.source for mutant in edited.mutants}
    same = {name for name in before if before[name] == after.get(name)}
    assert same == {name for name in before if name.startswith("Counter")}
