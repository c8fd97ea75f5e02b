from bench.start import start


def test_what_a_start_costs_is_read_from_the_process() -> None:
    listening, client, printed = start(rounds=1)
    assert listening.kproxy and client.kproxy and printed.kproxy
