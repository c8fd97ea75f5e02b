import pytest

from kproxy.config.variables import expand

ENVIRON = {"A": "1", "EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("plain $A $ {A}", "plain $A $ {A}"),
        ("${A}-${A:-2}-${B:-3}", "1-1-3"),
        ("${EMPTY}|${EMPTY:-x}|${B:-}", "|x|"),
        ("$${A} ${B:-a:-b}", "${A} a:-b"),
    ],
)
def test_values(text: str, found: str) -> None:
    assert expand(text, ENVIRON) == found


@pytest.mark.parametrize("text", ["${B}", "${}", "${a b}", "${1:-x}"])
def test_what_has_no_value(text: str) -> None:
    with pytest.raises(ValueError, match=r"the environment has no B|is no variable"):
        expand(text, ENVIRON)
