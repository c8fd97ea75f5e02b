"""Coordinators that are asked again without long pauses."""

import pytest

from kproxy.net.brokers import coordinators


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask coordinators ten times, at once."""
    monkeypatch.setattr(coordinators, "_ELSEWHERE_SECONDS", (0.005,))
    monkeypatch.setattr(coordinators, "_BUSY_SECONDS", (0.005,))
    monkeypatch.setattr(coordinators, "_PATIENCE_SECONDS", 0.0)
