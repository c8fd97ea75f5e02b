"""The driver's check that rows and decisions go to one kproxy."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kproxy.client import ControlError, ControlUnreachable
from kproxy.spark.sink_control import Decider
from kproxy.spark.sink_ends import check_one_kproxy
from kproxy.spark.sink_options import SinkOptions
from kproxy.spark.spark_errors import KafkaError
from tests.spark.sink_samples import FakeClock, FakeControl, options


class Bootstrap:
    """What listens at ``kafka.bootstrap.servers``: from the connection ``since`` on it is the kproxy of the control."""

    def __init__(self, control: FakeControl, since: int = 1) -> None:
        self.client_ids: list[str] = []
        self._control = control
        self._since = since

    @contextmanager
    def __call__(self, _: SinkOptions, client_id: str) -> Iterator[None]:
        self.client_ids.append(client_id)
        if len(self.client_ids) >= self._since:
            self._control.connected.add(client_id)
        yield
        self._control.connected.discard(client_id)


def _check(control: FakeControl, bootstrap: Bootstrap, clock: FakeClock | None = None) -> None:
    clock = clock or FakeClock()
    check_one_kproxy(options(), Decider(control, options(), None, clock), bootstrap, clock.sleep)


def test_one_kproxy() -> None:
    control = FakeControl(connected={"another"})
    bootstrap = Bootstrap(control)
    _check(control, bootstrap)
    [client_id] = bootstrap.client_ids
    assert client_id.startswith("kproxy-txn-check-")


def test_a_broker_or_another_kproxy() -> None:
    control = FakeControl(connected={"another"})
    bootstrap = Bootstrap(control, since=1000)
    match = r"kafka\.bootstrap\.servers \(localhost:9092\) is not the kproxy whose control API is at /run/kproxy"
    with pytest.raises(KafkaError, match=match):
        _check(control, bootstrap)
    assert len(set(bootstrap.client_ids)) == len(bootstrap.client_ids) > 1


def test_a_kproxy_that_is_being_replaced_is_asked_again() -> None:
    control, clock = FakeControl(fails=[ControlUnreachable("gone")]), FakeClock()
    _check(control, Bootstrap(control, since=2), clock)
    assert clock.now > 0


def test_a_control_api_that_refuses() -> None:
    control = FakeControl(fails=[ControlError(401, "CLUSTER_AUTHORIZATION_FAILED", "no token", retriable=False)])
    with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
        _check(control, Bootstrap(control))


def test_an_address_that_does_not_answer() -> None:
    given = options(bootstrap="127.0.0.1:1", retry_ms=200)
    with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1.* does not answer as it should"):
        check_one_kproxy(given, Decider(FakeControl(), given, None, FakeClock()))
