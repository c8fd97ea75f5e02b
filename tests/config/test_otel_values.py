import pytest

from kproxy.config.otel_values import OTLP_ENDPOINT, RATIO


@pytest.mark.parametrize("text", ["http://localhost:4318", "https://otel.example/base", "http://[::1]:4318/"])
def test_an_endpoint_is_an_address(text: str) -> None:
    assert OTLP_ENDPOINT.parse(text) == text


@pytest.mark.parametrize("text", ["off", "", " OFF "])
def test_an_endpoint_may_be_off(text: str) -> None:
    assert OTLP_ENDPOINT.parse(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "localhost:4318",
        "grpc://c:4317",
        "http://",
        "http://me:secret@c",
        "http://c:1/v1/traces",
        "http://c:99999",
        "http://c?a=b",
    ],
)
def test_other_endpoints_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be http://HOST:PORT"):
        OTLP_ENDPOINT.parse(text)


@pytest.mark.parametrize(("text", "value"), [("0", 0.0), ("1", 1.0), ("0.01", 0.01), (".5", 0.5), ("1.0", 1.0)])
def test_a_ratio(text: str, value: float) -> None:
    assert RATIO.parse(text) == value


@pytest.mark.parametrize("text", ["1.1", "-0.1", "nan", "1e-3", "", "a", "10", "0.1234567890"])
def test_no_ratio(text: str) -> None:
    with pytest.raises(ValueError, match="a number from 0 to 1"):
        RATIO.parse(text)
