from kproxy.config.os_limits import open_files_for


def test_each_client_has_a_broker_and_something_is_left() -> None:
    assert open_files_for(10_000) == 21_000
