import pytest

from kproxy.config import ExitCode, StartupError
from kproxy.errors import KproxyError


def test_the_numbers_of_the_exit_codes_stay() -> None:
    names = ("OK", "FAILURE", "USAGE", "CANNOT_BIND", "PROMISE_BROKEN", "WARNINGS", "UNWELL")
    assert {code.name: int(code) for code in ExitCode} == {name: number for number, name in enumerate(names)}


@pytest.mark.parametrize("code", [ExitCode.USAGE, ExitCode.CANNOT_BIND])
def test_a_startup_error_carries_its_line_and_its_code(code: ExitCode) -> None:
    with pytest.raises(KproxyError, match=r"^cannot listen$") as caught:
        raise StartupError("cannot listen", code)
    assert isinstance(caught.value, StartupError)
    assert caught.value.exit_code == code


def test_a_startup_error_is_a_failure_unless_told() -> None:
    assert StartupError("no broker").exit_code == ExitCode.FAILURE
