from kproxy.heap import trim


def test_trimming_does_no_harm() -> None:
    trim()
