"""How long a test waits for what must happen: so long that a machine ten times slower is in time, too."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

_T = TypeVar("_T")
PATIENCE_S: Final = 120.0
_PAUSE_S: Final = 0.02


def repeat_while(is_early: Callable[[_T], object], ask: Callable[[], _T]) -> _T:
    """Ask until the response is not an early one; return the last response, after two minutes whatever it is."""
    deadline = time.monotonic() + PATIENCE_S
    while is_early(answer := ask()) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    return answer


def eventually(
    condition: Callable[[], object],
    meanwhile: Callable[[], object] = lambda: None,
    otherwise: Callable[[], object] = lambda: "",
) -> None:
    """Wait until a condition holds.

    :param meanwhile: is called before each check.
    :param otherwise: what the error says.
    :raises AssertionError: the condition does not hold within two minutes.
    """

    def holds() -> bool:
        meanwhile()
        return bool(condition())

    assert repeat_while(lambda held: not held, holds), f"not within {PATIENCE_S:.0f} s: {otherwise()}"
