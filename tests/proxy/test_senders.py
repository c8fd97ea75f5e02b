import pytest

from kproxy.proxy.senders import sender_of


@pytest.mark.parametrize(
    ("host", "sender"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("::1", "::1"),
        ("", ""),
        ("not an address", "not an address"),
    ],
)
def test_a_host_is_counted_by_its_ipv4_address_or_its_ipv6_network(host: str, sender: str) -> None:
    assert sender_of(host) == sender
