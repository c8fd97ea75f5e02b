"""The options of the command that are checked before anything is started."""

import pytest
from click.testing import CliRunner

from verification.spark_proof.__main__ import main


@pytest.mark.parametrize("given", ["drver=2", "driver", "driver=", "executor=-1", "=3"])
def test_who_is_killed_and_how_often_is_checked(given: str) -> None:
    ended = CliRunner().invoke(main, ["--kill", given])
    assert ended.exit_code == 2
    assert "must be one of driver, executor, worker, kproxy, broker, then = and a number" in " ".join(
        ended.output.replace("│", " ").split()
    )


def test_more_kills_than_batches_are_refused() -> None:
    ended = CliRunner().invoke(main, ["--kill", "driver=3", "--records", "1000", "--batch", "500"])
    assert ended.exit_code == 2
    assert "3 kills need as many batches, and there are 2" in ended.output
