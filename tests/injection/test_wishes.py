"""Annotations of a pod: what they may say, and what a wrong one is answered with."""

import pytest

from kproxy.injection.wishes import PARSERS, Sidecar, WishRefused, wished

DEFAULTS = Sidecar("kproxy:0.1.0", bootstrap_servers="kafka:9092")


def test_nothing_wished_is_as_the_webhook_has_it() -> None:
    assert wished(DEFAULTS, {"prometheus.io/scrape": "true"}) == DEFAULTS


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("bootstrap-servers", "", "must be HOST:PORT,HOST:PORT"),
        ("bootstrap-servers", "kafka:9092,kafka", "must be HOST:PORT"),
        ("bootstrap-servers", "http://kafka:9092", "must be HOST:PORT without a scheme"),
        ("listen", "127.0.0.1:0", "the port must be a number from 1 to 65535"),
        ("listen", "127.0.0.1:19644", "must have another port: 19644 is that of kproxy's health and metrics"),
        ("config-map", "My Config", "must be a name in Kubernetes"),
        ("config-map", "a" * 254, "must be a name in Kubernetes"),
        ("secret", "../etc", "must be a name in Kubernetes"),
        ("image", "kproxy 0.1.0", "must be the reference of an image"),
        ("image", "", "must be the reference of an image"),
        ("cpu-request", "lots", "must be an amount of CPU, such as 100m or 0.5"),
        ("cpu-limit", "1Gi", "must be an amount of CPU"),
        ("memory-request", "96MB", "must be an amount of memory, such as 96Mi or 1Gi"),
        ("memory-limit", "-1", "must be an amount of memory"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_valid(name: str, text: str, message: str) -> None:
    with pytest.raises(WishRefused) as caught:
        wished(DEFAULTS, {f"kproxy.io/{name}": text})
    assert str(caught.value).startswith(f"annotation kproxy.io/{name} = '{text[:100]}")
    assert message in str(caught.value)


def test_a_misspelt_annotation_is_named_with_the_right_one() -> None:
    with pytest.raises(WishRefused) as caught:
        wished(DEFAULTS, {"kproxy.io/bootstrap-server": "kafka:9092"})
    assert str(caught.value) == (
        "annotation 'kproxy.io/bootstrap-server': there is no such annotation; "
        f"valid: {', '.join(sorted(PARSERS))}; did you mean 'bootstrap-servers'?"
    )


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(WishRefused) as caught:
        wished(DEFAULTS, {"kproxy.io/image": "!" * 200_000, "kproxy.io/" + "x" * 1000: "1"})
    assert len(str(caught.value)) < 400


def test_no_brokers_at_all_is_refused() -> None:
    with pytest.raises(WishRefused, match=r"no brokers: set the annotation kproxy\.io/bootstrap-servers to HOST:PORT"):
        wished(Sidecar("kproxy:0.1.0"), {})


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"cpu-request": "600m", "cpu-limit": "0.5"}, r"cpu-request = 600m is above cpu-limit = 0\.5: lower the one"),
        (
            {"memory-request": "1G"},
            "memory-request = 1G is above memory-limit = 384Mi: lower the one, or raise the other",
        ),
        ({"memory-limit": "100"}, "memory-request = 96Mi is above memory-limit = 100"),
    ],
)
def test_a_request_above_its_limit_is_refused(annotations: dict[str, str], message: str) -> None:
    with pytest.raises(WishRefused, match=message):
        wished(DEFAULTS, {f"kproxy.io/{name}": text for name, text in annotations.items()})


def test_a_request_may_be_as_high_as_its_limit() -> None:
    made = wished(DEFAULTS, {"kproxy.io/cpu-limit": "0.1", "kproxy.io/memory-limit": "98304Ki"})
    assert (made.cpu_limit, made.memory_limit) == ("0.1", "98304Ki")


def test_addresses_are_written_in_one_way() -> None:
    made = wished(DEFAULTS, {"kproxy.io/bootstrap-servers": " a:9092, [::1]:9093 "})
    assert made.bootstrap_servers == "a:9092,[::1]:9093"
