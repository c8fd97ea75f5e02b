from bench.steady import steady


def test_the_last_minute_is_compared_with_the_first() -> None:
    first, last, most, grown = steady(minutes=2, minute_seconds=0.1)
    assert first.kproxy and last.kproxy and most.kproxy
    assert most.kproxy >= max(first.kproxy, last.kproxy)
    assert last.met is not None
    assert grown.met is not None
