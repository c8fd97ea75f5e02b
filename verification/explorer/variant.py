"""A rule of the product that is replaced, and the world in which it is missed."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple
from unittest.mock import patch

from verification.simulation.transactions import broken_rules as rules


class Variant(NamedTuple):
    """One rule less."""

    #: What becomes of the rule.
    name: str
    changes: tuple[rules.Change, ...]
    #: The name of the world in which it is missed, and what breaks there.
    scenario: str
    breaks: str

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Leave the rule out until the block ends."""
        with ExitStack() as stack:
            for owner, name, new in self.changes:
                stack.enter_context(patch.object(owner, name, new))
            yield
