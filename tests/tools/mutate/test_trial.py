"""What a fork of the collected tests can change."""

import gc

from tools.mutate.mutants import Unit
from tools.mutate.trial import functions, run


def test_a_function_is_found_although_the_tests_have_frozen_what_they_imported() -> None:
    gc.freeze()
    code = run.__code__
    assert functions()[code.co_filename, Unit(code.co_qualname, code.co_firstlineno)] == [run]
