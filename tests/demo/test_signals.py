"""Signals end a command by an exception, also where a shell ignores SIGINT for it."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import signal
from kproxy.demo.signals import end_on_signals, wait_for_interrupt
signal.signal(signal.SIGINT, signal.SIG_IGN)
end_on_signals()
try:
    wait_for_interrupt(lambda: print("waiting", flush=True))
finally:
    print("stopped")
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_what_was_started_is_stopped(number: signal.Signals, status: int) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(number)
        assert process.stdout.read() == "stopped\n"
        assert process.wait(60) == status
