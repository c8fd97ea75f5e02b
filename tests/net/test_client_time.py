"""For how long a client could have sent something."""

from kproxy.net.client_time import ClientTime


def test_only_waits_for_the_client_count() -> None:
    time = ClientTime()
    assert (time.since, time.seconds(5.0)) == (None, 0.0)
    time.begin(5.0)
    assert (time.since, time.seconds(7.0)) == (5.0, 2.0)
    assert time.end(8.0) == 3.0
    assert (time.since, time.seconds(100.0)) == (None, 3.0)
    time.begin(100.0)
    assert time.seconds(101.0) == 4.0
