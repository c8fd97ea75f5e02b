"""What reaches the brokers is in the trace."""

from tests.verification.simulation.worlds import client, plan, send
from verification.simulation.world import run


def test_each_batch_is_traced_with_its_producer_and_sequence() -> None:
    outcome = run(plan(client(send(b"a", b"b"), send(b"c"))))
    told = [line.split("gets ")[1] for line in outcome.trace if "gets t " in line]
    assert [line.split(" of ")[0] for line in told] == ["t 0: 2 records", "t 0: 1 records"]
    assert [line.split("/")[-1] for line in told] == ["0", "2"]
