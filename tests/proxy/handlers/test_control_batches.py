import pytest

from kproxy.proxy.handlers.control_batches import may_end_with_marker, skips_control_batches
from tests.proxy.playbook import context

NO_SESSION, NEW_SESSION = -1, 0


@pytest.mark.parametrize(
    ("name", "version", "skips"),
    [
        ("apache-kafka-java", "4.3.0", True),
        ("librdkafka", "2.16.1", True),
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.1", True),
        ("confluent-kafka-go", "v2.3.0-librdkafka-2.3.0", True),
        ("kafka-python", "3.0.12", True),
        ("kafka-python", "2.3.1", False),
        ("kafka-python", "", False),
        ("kafka-python", "²", False),
        ("kafka-python", "9" * 5000, False),
        ("kgo", "v1.22.2", True),
        ("sarama", "v1.61.1", True),
        ("", "", False),
        ("kafka-go", "0.5", False),
        ("apache-kafka-javascript", "1", False),
        ("kafka-python", "2.0.2", False),
    ],
)
def test_only_software_that_is_proven_to_skip_control_batches_gets_them(name: str, version: str, skips: bool) -> None:
    ctx = context()
    ctx.know(software=name, software_version=version)
    assert skips_control_batches(ctx) is skips
    assert may_end_with_marker(ctx, 12, NO_SESSION) is skips


@pytest.mark.parametrize(
    ("api_versions", "fetch", "session_epoch", "marker"),
    [
        (1, 5, NO_SESSION, True),  # Java 0.11
        (1, 6, NO_SESSION, True),  # 1.0
        (1, 7, NEW_SESSION, True),  # 1.1
        (2, 8, NEW_SESSION, True),  # 2.0
        (2, 10, NEW_SESSION, True),  # 2.1
        (2, 11, NEW_SESSION, True),  # 2.3
        (0, 4, NO_SESSION, False),  # kafka-python 1.4.7 and 2.0.2
        (0, 10, NO_SESSION, False),  # kafka-go
        (2, 11, NO_SESSION, False),  # kafkajs
        (-1, 4, NO_SESSION, False),
        (-1, 7, NEW_SESSION, False),
        (0, 5, NO_SESSION, False),
        (2, 12, NEW_SESSION, False),
    ],
)
def test_of_clients_without_a_name_java_alone_may_get_one_at_the_end(
    api_versions: int, fetch: int, session_epoch: int, marker: bool
) -> None:
    ctx = context()
    ctx.know(api_versions=api_versions)
    assert may_end_with_marker(ctx, fetch, session_epoch) is marker
    assert not skips_control_batches(ctx)


def test_a_name_that_is_not_proven_is_not_taken_for_java() -> None:
    ctx = context()
    ctx.know(software="something-new", api_versions=2)
    assert not may_end_with_marker(ctx, 11, NEW_SESSION)
