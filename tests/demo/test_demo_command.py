"""The demonstration as a user runs it: a child process, its output, its exit status, what it leaves behind."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT_SECONDS = 110


def run_demo(*options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "kproxy", "demo", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)


def figures(output: str) -> dict[str, str]:
    """The rows of the closing table: name -> count."""
    names = ("sent", "acknowledged", "in the log", "stamped", "consumed", "lost", "duplicate")
    rows = {}
    for line in output.splitlines():
        for name in names:
            if line.strip().startswith(name + " "):
                rows[name] = line.strip().removeprefix(name).split()[0]
    return rows


EXACTLY_ONCE = {
    "sent": "3,000",
    "acknowledged": "3,000",
    "in the log": "3,000",
    "stamped": "3,000",
    "consumed": "3,000",
    "lost": "0",
    "duplicate": "0",
}


def test_the_old_client_is_refused_then_served_with_the_fake_broker() -> None:
    ended = run_demo("--broker", "fake", "--records", "3000")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "embedded fake broker" in ended.stdout
    assert "refused" in ended.stdout
    assert figures(ended.stdout) == EXACTLY_ONCE


@pytest.mark.kafka
def test_the_old_client_is_refused_then_served_with_a_real_kafka() -> None:
    ended = run_demo("--broker", "kafka", "--records", "3000")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "A real Kafka 4.4.0" in ended.stdout
    assert "refused" in ended.stdout
    assert figures(ended.stdout) == EXACTLY_ONCE


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(child) for child in listed.split()]


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie that nobody has collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_signal_ends_what_the_demo_started() -> None:
    command = [sys.executable, "-u", "-m", "kproxy", "demo", "--broker", "fake", "--records", "100", "--keep"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Ctrl-C" in line:
                break
        started = children(process.pid)
        assert started, "the proxy should be running"
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_SECONDS)
        assert not any(is_running(pid) for pid in started)


def test_a_missing_client_library_is_one_clear_line() -> None:
    hide = "import sys; sys.modules['confluent_kafka'] = None; from kproxy.cli import main; sys.exit(main(['demo']))"
    ended = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "kproxy: the demo needs a Kafka client: pip install '.[demo]', in a clone of kproxy\n"
