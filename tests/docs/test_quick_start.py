"""The first hour as the documentation has it: its own blocks, run in its order, at ports that are free here."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from kproxy.testing.ports import free_ports
from tests.docs.test_doc_blocks import ROOT, blocks

TIMEOUT_S = 110
STARTED = ROOT / "docs" / "getting-started.md"


@pytest.fixture
def ports() -> dict[str, str]:
    """The addresses of the documentation, and those that stand for them here."""
    return places(free_ports(102))  # a port for each of 100 brokers follows


def places(ports: Sequence[int]) -> dict[str, str]:
    return {"127.0.0.1:19092": f"127.0.0.1:{ports[1]}", "127.0.0.1:19644": f"127.0.0.1:{ports[0]}"}


def block_with(page: Path, words: str) -> str:
    [found] = [block.text for block in blocks(page) if words in block.text]
    return found


def shell(text: str, ports: dict[str, str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a block with ``kproxy`` and ``python`` of this environment; what it fetches is here already."""
    for old, new in ports.items():
        text = text.replace(old, new)
    text = re.sub(r"^pip install .*$", "", text, flags=re.M)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euc", text],
        env=os.environ | environment | {"PATH": path, "KPROXY_HTTP": ports["127.0.0.1:19644"]},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@contextmanager
def sandbox(ports: dict[str, str]) -> Iterator[dict[str, str]]:
    """The sandbox of docs/getting-started.md, with the embedded broker; its addresses."""
    assert block_with(STARTED, "kproxy sandbox").splitlines()[-1] == "kproxy sandbox"
    command = [sys.executable, "-m", "kproxy", "sandbox", "--broker", "fake", "--json"]
    listen, http = ports.values()
    with subprocess.Popen([*command, "--listen", listen, "--http", http], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(TIMEOUT_S)


def test_a_first_record_goes_through_the_sandbox(ports: dict[str, str]) -> None:
    with sandbox(ports):
        done = shell(block_with(STARTED, "producer.produce"), ports)
        assert (done.returncode, done.stdout) == (0, "acknowledged\n"), done.stderr
        listed = shell("kproxy status", ports)
    assert listed.returncode == 0, listed.stderr
    assert "clients that Kafka 4 refuses" in listed.stdout
    assert re.search(r"rdkafka .*Produce v1", listed.stdout), listed.stdout


def test_the_quick_start_of_the_readme() -> None:
    text = block_with(ROOT / "README.md", "kproxy run")
    install, run = text.splitlines()[:2]
    watch = text[text.index("kproxy status") :]
    assert install == "pip install ."
    all_ports = free_ports(204)
    own, watched = places(all_ports[102:]), "127.0.0.1:19644"
    with sandbox(places(all_ports)) as addresses:
        start = run.replace("broker1:9092,broker2:9092", addresses["broker"])
        done = shell(
            f"{start} --listen 127.0.0.1:19092 --http {watched} 2>/dev/null & trap 'kill %1; wait %1' EXIT\n"
            f"until curl --silent --fail http://{watched}/readyz >/dev/null; do sleep 0.1; done\n{watch}",
            own,
        )
    assert done.returncode == 0, done.stderr
    assert "kproxy_ready 1.0" in done.stdout
    assert re.search(r"^state +ready", done.stdout, re.M)
