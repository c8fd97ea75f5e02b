import pytest

from kproxy.dedup.identity import normal_host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"])
def test_all_addresses_of_this_host_are_one(host: str) -> None:
    assert normal_host(host) == "localhost"


@pytest.mark.parametrize(
    ("host", "normal"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("memory-client-1", "memory-client-1"),
    ],
)
def test_other_addresses_have_one_spelling(host: str, normal: str) -> None:
    assert normal_host(host) == normal
