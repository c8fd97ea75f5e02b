from typing import Any

import pytest

from kproxy.codec.messages import ApiKey
from kproxy.config.values import COMMIT_RULES
from kproxy.doctor import option_checks
from kproxy.doctor.examined import Examined
from kproxy.doctor.findings import Level
from kproxy.proxy.coordinator_rules import Home, HomeRule
from tests.doctor.patients import edit, examined, fake, levels, make_config, only


def test_the_defaults_do_not_contradict_each_other() -> None:
    assert levels(option_checks.times, Examined(make_config())) == [Level.OK]
    assert levels(option_checks.sizes, Examined(make_config())) == [Level.SKIPPED]  # no broker was asked


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"retry_window_ms": 60_000, "delivery_timeout_ms": 60_000}, Level.FAIL),
        ({"retry_window_ms": 119_999}, Level.WARN),
        ({"clean_close_window_ms": 120_001}, Level.WARN),
        ({"upstream_request_timeout_ms": 60_000}, Level.WARN),
        ({"shutdown_grace_ms": 30_000}, Level.WARN),
        (
            {"on_offset_commit": COMMIT_RULES.parse("etl"), "on_offset_commit_timeout_ms": 900_001},
            Level.FAIL,
        ),
    ],
)
def test_times_that_contradict_each_other(given: dict[str, Any], expected: Level) -> None:
    finding = only(option_checks.times, Examined(make_config(**given)))
    assert finding.level is expected
    assert any(name.replace("_", ".") in finding.found for name in given)


def told(name: str, value: int) -> Any:
    """A change of DescribeConfigs' answer: brokers with this setting."""

    def tell(answer: Any) -> None:
        for result in answer.results:
            for row in result.configs:
                if row.name == "num.partitions" or row.name == name:
                    row.name, row.value = name, str(value)

    return tell


@pytest.mark.parametrize(("kept_ms", "expected"), [(240_001, Level.OK), (240_000, Level.FAIL)])
async def test_brokers_that_forget_producer_ids(kept_ms: int, expected: Level) -> None:
    async with fake(1) as cluster:
        edit(cluster, ApiKey.DESCRIBE_CONFIGS, told("producer.id.expiration.ms", kept_ms))
        assert levels(option_checks.expiration, await examined(cluster)) == [expected]


@pytest.mark.parametrize(("theirs", "expected"), [(900_000, Level.OK), (60_000, Level.WARN)])
async def test_transaction_timeouts(theirs: int, expected: Level) -> None:
    assert levels(option_checks.transaction_timeouts, Examined(make_config())) == [Level.SKIPPED]
    async with fake(1) as cluster:
        edit(cluster, ApiKey.DESCRIBE_CONFIGS, told("transaction.max.timeout.ms", theirs))
        assert levels(option_checks.transaction_timeouts, await examined(cluster)) == [expected]
        ours = (HomeRule("*", Home.KPROXY),)
        assert levels(option_checks.transaction_timeouts, await examined(cluster, transactions_home=ours)) == [Level.OK]


async def test_frames_that_the_broker_will_not_take() -> None:
    async with fake(2) as cluster:
        edit(cluster, ApiKey.DESCRIBE_CONFIGS, told("socket.request.max.bytes", 1_000_000))
        finding = only(option_checks.sizes, await examined(cluster))
    assert finding.level is Level.WARN
    assert "set max.frame.bytes to 1000000" in finding.advice


def test_reads_that_are_shorter_than_a_batch() -> None:
    given = make_config(fetch_max_bytes=1_000_000, recovery_max_bytes=1_000_000)
    assert levels(option_checks.sizes, Examined(given)) == [Level.WARN, Level.WARN, Level.SKIPPED]


@pytest.mark.parametrize(
    ("hard", "expected"), [(-1, Level.OK), (21_000, Level.OK), (20_999, Level.WARN), (500, Level.WARN)]
)
def test_open_files(hard: int, expected: Level) -> None:
    finding = only(option_checks.open_files, Examined(make_config(), open_files=(256, hard)))
    assert finding.level is expected


def test_a_kproxy_that_runs() -> None:
    status = {"ready": True, "version": "1", "instance_id": "a", "reasons": []}
    assert levels(option_checks.running, Examined(make_config())) == [Level.SKIPPED]
    assert levels(option_checks.running, Examined(make_config(), running=status)) == [Level.OK]
    finding = only(
        option_checks.running, Examined(make_config(), running=status | {"ready": False, "reasons": ["why"]})
    )
    assert (finding.level, "why" in finding.found) == (Level.FAIL, True)


def test_a_transaction_log_that_lost_records() -> None:
    assert levels(option_checks.transaction_log, Examined(make_config())) == [Level.SKIPPED]
    for losses, level in ((0, Level.OK), (2, Level.FAIL)):
        status = {"transactions": {"log_losses": losses}}
        assert only(option_checks.transaction_log, Examined(make_config(), running=status)).level is level
    assert levels(option_checks.transaction_log, Examined(make_config(), running={})) == [Level.OK], "an older kproxy"
