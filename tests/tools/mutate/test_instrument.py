"""Each statement of a function says that it was reached, and does what it did."""

from typing import Any

import pytest

from tools.mutate.instrument import Instrumented, module_name
from tools.mutate.mutants import Module

SOURCE = '''\
def sign(x):
    """Documentation."""
    if x > 0:
        return 1
    elif x < 0:
        return -1
    try:
        raise ValueError
    except ValueError:
        return 0
'''


@pytest.mark.parametrize(("x", "result", "lines"), [(5, 1, [3, 4]), (-5, -1, [3, 5, 6]), (0, 0, [3, 5, 7, 8, 10])])
def test_lines(x: int, result: int, lines: list[int]) -> None:
    reached: list[int | str] = []
    module = Instrumented("sign.py", SOURCE)
    found: dict[str, Any] = module.globals(reached.append)
    exec(module.code, found)
    assert found["sign"](x) == result
    assert [one for one in reached if isinstance(one, int)] == lines
    assert found["sign"].__doc__ == "Documentation."


@pytest.mark.parametrize(
    ("source", "calls", "idle"),
    [
        ("return a and b", [(1, 1), (1, 0)], {"drop `a`"}),
        ("return a or b", [(0, 1)], {"drop `a`"}),
        ("return a or ''", [(0, 1)], {"drop `a`"}),
        ("return 1 if a else 2", [(1, 0)], {"choose True"}),
        ("if not a:\n        return b", [(1, 0)], {"if False"}),
        ("while a and b: b -= 1", [(1, 2)], {"drop `a`"}),
        ("return [x for x in (a, b) if x]", [(1, 1)], {"no filter"}),
        ("return a < b", [(1, 2), (2, 1)], {"`a < b` becomes `a <= b`"}),
        ("return a == b", [(1, 2), (2, 2)], {"`a == b` becomes `a >= b`"}),
        ("return a == b", [(2, 1), ((), 1)], set()),
        ("return a is not b", [(1, 2)], set()),
    ],
)
def test_what_makes_no_difference(source: str, calls: list[tuple[Any, Any]], idle: set[str]) -> None:
    """No test that meets only these values is tried on the mutants."""
    source = f"def f(a, b):\n    {source}\n"
    reached: set[int | str] = set()
    module = Instrumented("f.py", source)
    found: dict[str, Any] = module.globals(reached.add)
    exec(module.code, found)
    plain: dict[str, Any] = {}
    exec(source, plain)
    for a, b in calls:
        assert found["f"](a, b) == plain["f"](a, b)
    names = [one.name for one in Module("f.py", source).mutants if (one.needs or one.line) not in reached]
    assert len(names) == len(idle)
    assert all(name.startswith(f"f: {what}") for name, what in zip(names, idle, strict=True))


def test_names() -> None:
    assert module_name("kproxy/dedup/retry_rules.py") == "kproxy.dedup.retry_rules"
