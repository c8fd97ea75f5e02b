"""How drivers start, and what is said where one cannot."""

import sys

import pytest

from kproxy.testing.tools import Unavailable
from verification.chaos.programs import DRIVERS, command_of


def test_a_python_driver_is_a_module_run_by_this_python() -> None:
    command = command_of("librdkafka", ())
    assert command.arguments == [sys.executable, "-m", "verification.chaos.drivers.librdkafka"]
    assert command.environment["PYTHONPATH"] == ""


@pytest.mark.parametrize(
    ("driver", "message"), [("sarama", "no go found: install Go"), ("java010/PlainProducer.java", "no java found")]
)
def test_a_missing_tool_is_named(driver: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    monkeypatch.setenv("XDG_CACHE_HOME", "/nonexistent")
    assert (DRIVERS / driver).exists()
    with pytest.raises(Unavailable, match=message):
        command_of(driver, ["g:a:1"] if driver.endswith("java") else [])
