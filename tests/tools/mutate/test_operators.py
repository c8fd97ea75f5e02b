"""What is changed, and what is left alone."""

import ast

import pytest

from tools.mutate.operators import changes, is_left_alone


def changed(source: str) -> list[str]:
    """What every node of a piece of code may become."""
    return [one.what for node in ast.walk(ast.parse(source)) if not is_left_alone(node) for one in changes(node)]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("f(x)", ["delete `f(x)`"]),
        ("a.b = c", ["delete `a.b = c`"]),
        ("a = c", []),
        ("raise E", ["delete `raise E`"]),
        ("a = x or y", ["drop `x` of `or` in `x or y`", "drop `y` of `or` in `x or y`"]),
        ("a = x < y", ["`x < y` becomes `x <= y`"]),
        ("a = x == y", ["`x == y` becomes `x != y`", "`x == y` becomes `x >= y`", "`x == y` becomes `x <= y`"]),
        ("a = x == 'text'", ["`x == 'text'` becomes `x != 'text'`"]),
        ("a = x != Verdict.COMMITTED", ["`x != Verdict.COMMITTED` becomes `x == Verdict.COMMITTED`"]),
        ("a = not x", ["`not x` loses its not"]),
        ("a = b if c else d", ["choose True instead of `c`", "choose False instead of `c`"]),
        ("a = [b for b in c if d]", ["no filter `d`"]),
        ("a = min(b, c)", ["`min(b, c)` becomes max"]),
        ("a = 7", ["7 becomes 8"]),
        ("a = False", ["False becomes True"]),
        ("a = b - c", ["`b - c` becomes `b + c`"]),
        ("a = 'text'", []),
    ],
)
def test_changes(source: str, found: list[str]) -> None:
    assert changed(source) == found


@pytest.mark.parametrize(
    "source",
    [
        "'''documentation'''",
        "log.info('x', size=1)",
        "self._tools.traces.begun(x, y)",
        "assert x == 1",
        "f'{x + 1}'",
        "A: TypeAlias = B | C",
    ],
)
def test_documentation_logs_and_assertions_are_left_alone(source: str) -> None:
    (statement,) = ast.parse(source).body
    inner = statement.value if isinstance(statement, ast.Expr) else statement
    assert is_left_alone(statement) or is_left_alone(inner)
