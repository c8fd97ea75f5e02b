from kproxy.proxy.handlers.base import Context, Fault
from kproxy.proxy.last_faults import LastFaults, Whose
from kproxy.proxy.routing import ClusterMap


def context(client_id: str, fault: Fault | None) -> Context:
    made = Context(cluster=ClusterMap(), local_host="", max_decompressed_bytes=0, fetch_max_bytes=0, transcode={})
    made.client_id, made.fault = client_id, fault
    return made


def test_the_last_one_of_each_client_is_known() -> None:
    faults = LastFaults()
    faults.note(context("a", Fault("old", 1.0)), "h")
    faults.note(context("b", None), "h")
    faults.note(context("a", Fault("new", 2.0)), "h")
    assert faults.by_client == {Whose("a", "h"): Fault("new", 2.0)}


def test_the_oldest_is_forgotten_first() -> None:
    faults = LastFaults()
    for number in range(1000):
        faults.note(context("kept", Fault("again", number)), "h")
        faults.note(context(f"c-{number}", Fault("once", number)), "h")
    assert len(faults.by_client) == 256
    assert Whose("kept", "h") in faults.by_client
    assert Whose("c-0", "h") not in faults.by_client
