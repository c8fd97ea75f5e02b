from kproxy.proxy.context import Fault
from kproxy.proxy.last_faults import ClientOrigin, LastFaults


def test_the_last_one_of_each_client_is_known() -> None:
    faults = LastFaults()
    faults.note("a", "h", Fault("old", 1.0))
    faults.note("b", "h", None)
    faults.note("a", "h", Fault("new", 2.0))
    assert faults.by_client == {ClientOrigin("a", "h"): Fault("new", 2.0)}


def test_the_oldest_is_forgotten_first() -> None:
    faults = LastFaults()
    for number in range(1000):
        faults.note("kept", "h", Fault("again", number))
        faults.note(f"c-{number}", "h", Fault("once", number))
    assert len(faults.by_client) == 256
    assert ClientOrigin("kept", "h") in faults.by_client
    assert ClientOrigin("c-0", "h") not in faults.by_client
