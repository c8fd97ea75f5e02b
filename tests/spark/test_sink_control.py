"""What a query asks of the control API, and how long it retries."""

import pytest

from kproxy.client import ControlError, ControlUnreachable
from kproxy.spark.sink_control import Decider, Fenced
from kproxy.spark.spark_errors import KafkaError
from tests.spark.sink_samples import OWNER, FakeClock, FakeControl, options


def _decider(control: FakeControl, clock: FakeClock | None = None) -> Decider:
    return Decider(control, options(retry_ms=10_000), OWNER, clock or FakeClock())


def _refused(error: str, *, retriable: bool = False) -> ControlError:
    return ControlError(409, error, "no", retriable=retriable)


def test_taking_the_id_aborts_what_was_left() -> None:
    control = FakeControl()
    assert _decider(control).take() == OWNER
    assert [name for name, _ in control.asked] == ["initialize", "abort"]
    assert control.calls("abort") == [{"owner": OWNER, "abort_others": True}]


@pytest.mark.parametrize(("home", "lines"), [("broker", 0), (None, 0), ("kproxy", 1)])
def test_a_driver_says_once_that_readers_need_kproxy(
    caplog: pytest.LogCaptureFixture, home: str | None, lines: int
) -> None:
    _decider(FakeControl(member_home=home)).take()
    assert len(caplog.messages) == lines
    assert all("Consumers that do not read through kproxy see what was aborted" in line for line in caplog.messages)


def test_a_name_is_never_used_twice() -> None:
    control = FakeControl(fails=[ControlUnreachable("gone"), _refused("COORDINATOR_NOT_AVAILABLE", retriable=True)])
    control.committed = ("q/4",)
    name, committed = _decider(control).begin("5-0-1")
    tried = [how["member"] for how in control.calls("begin_member")]
    assert len(set(tried)) == 3
    assert tried[-1] == name
    assert name.startswith("5-0-1-")
    assert committed == ("q/4",)
    assert control.calls("begin_member")[-1]["client_id"] == f"kproxy-txn-{name}"
    assert control.calls("begin_member")[-1]["owner"] == OWNER
    assert control.calls("begin_member")[-1]["prefer_broker"]


def test_a_kproxy_that_is_away_is_waited_for_and_not_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    control = FakeControl(fails=[ControlUnreachable("gone")] * 1000)
    match = r"transactional\.id 'orders': gone \(tried for 2\d s, see kproxy\.retry\.timeout\.ms\)"
    with pytest.raises(KafkaError, match=match):
        Decider(control, options(retry_ms=25_000), OWNER, clock).commit("q/1", ["a"])
    assert 20 < clock.now <= 25
    assert caplog.messages[0] == "transactional.id 'orders' waits up to 25 s for kproxy: gone"
    assert len(caplog.messages) == 3


def test_what_can_not_come_right_is_reported_at_once() -> None:
    clock = FakeClock()
    control = FakeControl(fails=[_refused("INVALID_REQUEST")])
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        _decider(control, clock).commit("q/1", ["a"])
    assert clock.now == 0


def test_an_older_driver_learns_that_it_is_fenced() -> None:
    with pytest.raises(Fenced, match=r"another driver or query has taken transactional\.id 'orders'"):
        _decider(FakeControl(fails=[_refused("PRODUCER_FENCED")])).begin("1-0-0")


def test_a_prepare_whose_answer_was_lost_with_its_kproxy_counts() -> None:
    control = FakeControl(fails=[None, _refused("INVALID_TXN_STATE")], losing=lambda name: name == "prepare_member")
    _decider(control).prepare("m", 1)
    control = FakeControl(fails=[_refused("TRANSACTION_ABORTABLE")])
    with pytest.raises(KafkaError, match="TRANSACTION_ABORTABLE"):
        _decider(control).prepare("m", 1)


def test_who_is_given_up_needs_no_answer() -> None:
    _decider(FakeControl(fails=[ControlUnreachable("gone")])).abandon("m")
    _decider(FakeControl(fails=[_refused("INVALID_TXN_STATE")])).abandon("m")


def test_a_new_owner_is_noticed_and_no_answer_is_not() -> None:
    _decider(FakeControl(epoch=1)).check_owner()
    _decider(FakeControl(fails=[ControlUnreachable("gone")], epoch=2)).check_owner()
    with pytest.raises(Fenced, match=r"another driver or query has taken transactional\.id 'orders'"):
        _decider(FakeControl(epoch=2)).check_owner()
