"""What may be said to the sink."""

from pathlib import Path

import pytest

from kproxy.codec import compression
from kproxy.spark.option_table import SINK_NO_EFFECT, SINK_REFUSED
from kproxy.spark.record_encoding import Packing
from kproxy.spark.sink_options import DEFAULT_RETRY_MS, DEFAULT_TIMEOUT_MS, ControlAddress, derived_id, parse
from kproxy.spark.spark_errors import OptionError
from tests.spark.sink_samples import PLAIN


def test_defaults() -> None:
    found = parse(PLAIN, is_stream=True)
    assert (found.bootstrap, found.transactional_id, found.topic) == ("localhost:9092", "orders", "out")
    assert (found.timeout_ms, found.retry_ms) == (DEFAULT_TIMEOUT_MS, DEFAULT_RETRY_MS)
    assert found.control == ControlAddress(None, "/run/kproxy/control.sock", None)
    assert (found.packing, found.request_bytes) == (Packing(), 1_048_576)


def test_what_is_given_arrives() -> None:
    found = parse(
        PLAIN
        | {
            "Transaction.Timeout.ms": "5000",
            "kproxy.retry.timeout.ms": "7",
            "kafka.compression.type": "zstd",
            "kproxy.control.url": "https://kproxy.example:1",
            "kproxy.control.token.file": "/t",
            "kproxy.control.ssl.ca.location": "/ca",
            "checkpointLocation": "/c",
        },
        is_stream=True,
    )
    assert (found.timeout_ms, found.retry_ms, found.checkpoint) == (5000, 7, "/c")
    assert found.packing == Packing(compression.ZSTD)
    assert found.control == ControlAddress("https://kproxy.example:1", "/run/kproxy/control.sock", "/t", "/ca")


def test_a_stream_without_an_id_has_that_of_its_checkpoint() -> None:
    given = {"kafka.bootstrap.servers": "k:1"}
    ids = {
        parse(given | {"checkpointlocation": path}, is_stream=True).transactional_id
        for path in ("/data/cp", "/data/cp/", "file:/data/cp", "file:///data/cp")
    }
    assert ids == {derived_id("/data/cp")}
    assert derived_id("hdfs://n/data/cp") not in ids


@pytest.mark.parametrize(
    ("given", "is_stream", "message"),
    [
        (
            {"kafka.acks": "1"},
            True,
            "kafka.acks: the sink sets it, for exactly-once depends on it: leave it out, or say all",
        ),
        ({"kafka.linger": "1"}, True, "kafka.linger: no option of the sink; did you mean 'kafka.linger.ms'?"),
        ({"kafka.compression.type": "best"}, True, "valid: none, gzip, snappy, lz4, zstd"),
        ({"kafka.compression.gzip.level": "10"}, True, "'10' is no whole number from 1 to 9"),
        ({"kafka.batch.size": "0"}, True, "kafka.batch.size: '0' is no whole number from 1 to"),
        ({"kafka.enable.idempotence": "false"}, True, "exactly-once depends on it"),
        ({"kafka.transactional.id": "x"}, True, "write transactional.id, without kafka."),
        ({"topics": "x"}, True, "topics: no option of the sink; did you mean 'topic'?"),
        ({"transaction.timeout.ms": "1s"}, True, "transaction.timeout.ms: '1s' must be a whole number"),
        ({"transaction.timeout.ms": "0"}, True, "from 1 to"),
        ({"topic": " "}, True, "topic: must not be empty"),
        ({"batch.id": "1"}, True, "batch.id: is for df.write"),
        ({"kproxy.control.url": "http://a:1", "kproxy.control.socket": "/s"}, True, "not both"),
        ({"kproxy.control.url": "http://a:1"}, True, "kproxy.control.token.file: is needed"),
        ({"kproxy.control.ssl.ca.location": "/ca"}, True, "has no effect unless kproxy.control.url is https://"),
        ({"kafka.bootstrap.servers": ""}, True, "kafka.bootstrap.servers: must not be empty"),
        ({"kafka.bootstrap.servers": "kafka://k:1"}, True, "'kafka://k:1': must be HOST:PORT without a scheme"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], is_stream: bool, message: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse(PLAIN | given, is_stream=is_stream)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", [name for option in SINK_REFUSED for name in option.names])
def test_what_the_table_refuses_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=name.replace(".", r"\.")):
        parse(PLAIN | {name: "x"}, is_stream=True)


@pytest.mark.parametrize("name", [name for option in SINK_NO_EFFECT for name in option.names])
def test_what_has_no_effect_is_taken(name: str) -> None:
    assert parse(PLAIN | {name: "1"}, is_stream=True) == parse(PLAIN, is_stream=True)


def test_names_of_the_java_producer() -> None:
    given = {
        "kafka.compression.type": "zstd",
        "kafka.compression.gzip.level": "9",
        "kafka.compression.zstd.level": "5",
        "kafka.batch.size": "16384",
        "kafka.max.request.size": "2000000",
        "kafka.acks": "-1",
        "kafka.enable.idempotence": "TRUE",
    }
    found = parse(PLAIN | given, is_stream=True)
    assert found.packing == Packing(compression.ZSTD, 5, 16_384)
    assert found.request_bytes == 2_000_000


def test_what_is_missing_is_named() -> None:
    for is_stream in (True, False):
        with pytest.raises(OptionError, match=r"transactional\.id: is needed"):
            parse({"kafka.bootstrap.servers": "k:1"}, is_stream=is_stream)
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers: is needed"):
        parse({"transactional.id": "x"}, is_stream=True)


def test_a_client_is_made_of_an_address(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("x" * 16)
    ControlAddress("http://127.0.0.1:1", "", str(token)).client()
    with pytest.raises(OptionError, match=r"kproxy\.control\.token\.file"):
        ControlAddress("http://127.0.0.1:1", "", str(tmp_path / "none")).client()
    with pytest.raises(OptionError, match=r"kproxy\.control\.ssl\.ca\.location.*no PEM certificates"):
        ControlAddress("https://127.0.0.1:1", "", str(token), str(token)).client()
    with pytest.raises(OptionError, match=r"kproxy\.control\.url"):
        ControlAddress("127.0.0.1:1", "", str(token)).client()
