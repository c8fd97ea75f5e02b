import os

import pytest

from bench.start import start


def test_what_a_start_costs_is_read_from_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    listening, client, printed = start(rounds=1)
    assert os.environ["PYTHONDONTWRITEBYTECODE"] == "1"
    assert listening.kproxy and client.kproxy and printed.kproxy
