"""Each statement of a function says that it was reached, and does what it did."""

from typing import Any

import pytest

from tools.mutate.instrument import instrumented, module_name

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
    reached: list[int] = []
    found: dict[str, Any] = {"__reached__": reached.append}
    exec(instrumented("sign.py", SOURCE), found)
    assert found["sign"](x) == result
    assert reached == lines
    assert found["sign"].__doc__ == "Documentation."


def test_names() -> None:
    assert module_name("kproxy/dedup/retry_rules.py") == "kproxy.dedup.retry_rules"
