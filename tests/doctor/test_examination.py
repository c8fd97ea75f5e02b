from kproxy.config import Address
from kproxy.doctor.examination import look, worst
from kproxy.doctor.examined import Examined
from kproxy.doctor.findings import Level
from tests.doctor.patients import make_config

#: What needs no broker.
OF_THIS_HOST = {"time-outs", "open files"}


def test_nothing_that_was_not_asked_is_ok() -> None:
    config = make_config()
    unreachable = Examined(config, bootstrap={Address("kafka", 9092): "Connection refused"}, open_files=(1, -1))
    told = look(unreachable)
    assert {row.check for row in told if row.finding.level is Level.OK} == OF_THIS_HOST
    assert {row.check for row in told if row.finding.level is Level.FAIL} == {"bootstrap servers"}
    assert worst(told) is Level.FAIL
