from kproxy.proxy.client_ids import LONGEST_CLIENT_ID, kept_client_id


def test_a_client_id_of_common_length_is_kept_as_it_is() -> None:
    for client_id in ("", "orders-7", "x" * 255, "\u20ac" * 85):
        assert kept_client_id(client_id) == client_id


def test_of_a_long_one_the_beginning_and_a_hash_are_kept() -> None:
    one, other = kept_client_id("x" * 32_000 + "1"), kept_client_id("x" * 32_000 + "2")
    assert one != other
    assert one.startswith("x" * 48)
    assert kept_client_id(one) == one
    for char in ("x", "\u20ac", "\U0001f600"):
        assert len(kept_client_id(char * 256).encode()) <= LONGEST_CLIENT_ID
