"""The process's memory, where the C library is glibc."""

import os
import subprocess
import sys

import pytest

from kproxy.heap import trim

#: Prints the name of the mapping in which a large buffer is after a larger one was freed.
_PROGRAM = """
import ctypes
from kproxy.heap import keep_level

keep_level()
larger = bytearray(16 << 20)
del larger
buffer = bytearray(2 << 20)
address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
for line in open("/proc/self/maps"):
    fields = line.split()
    first, end = (int(number, 16) for number in fields[0].split("-"))
    if first <= address < end:
        print(fields[5] if len(fields) > 5 else "of its own")
"""


def test_trimming_does_no_harm() -> None:
    trim()


@pytest.mark.parametrize(("chosen", "place"), [({}, "of its own"), ({"GLIBC_TUNABLES": ""}, "[heap]")])
def test_large_buffers_stay_out_of_the_heap_unless_the_operator_wants_otherwise(
    chosen: dict[str, str], place: str
) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", _PROGRAM]
    found = subprocess.run(command, env=kept | chosen, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == place
