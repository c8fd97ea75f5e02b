import math
import re
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.samples import Sample

from kproxy import __version__
from kproxy.codec import accelerator
from kproxy.control.metrics import StatsCollector, make_registry
from kproxy.control.metrics_page import MetricsPage
from kproxy.proxy.certificate_stats import Validity
from kproxy.proxy.client_stats import ClientStats
from kproxy.proxy.durations import LATENCY_BUCKETS
from kproxy.proxy.produce_stats import ProduceStats
from kproxy.proxy.stats import Stats
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.proxy.upstream_stats import UpstreamStats

PAGE = Path(__file__).parent.parent.parent / "docs" / "metrics.md"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


def samples(stats: Stats) -> list[Sample]:
    page = generate_latest(make_registry(stats))
    return [sample for family in parse_text(page.decode()) for sample in family.samples]


def value(stats: Stats, name: str, **labels: str) -> float:
    [found] = [sample.value for sample in samples(stats) if sample.name == name and sample.labels == labels]
    return float(found)


def fill_transactions(stats: TransactionStats) -> None:
    stats.open, stats.prepared, stats.commits, stats.fenced = 41, 42, 43, 44
    stats.resumed, stats.continued, stats.unrecorded, stats.foreign = 45, 54, 55, 56
    stats.prepared_until, stats.torn, stats.ids = 1030.0, 52, 53
    stats.aborted("timeout")
    stats.claimed("lost")
    stats.appends.observe(0.003)
    stats.log_lag, stats.log_load_seconds, stats.hidden_bytes = 45, 46.5, 47
    stats.log_losses = {"truncated": 53}
    stats.stable("orders", 3, 48)
    stats.unknown, stats.rejected = 49, 50


def filled() -> Stats:
    stats = Stats(
        upstream=UpstreamStats(reached=True, listening=True, brokers=3),
        clients=ClientStats(connections_limit=5, buffered_bytes=6, buffered_bytes_limit=60),
        produce=ProduceStats(epoch_bumps=7),
    )
    stats.clients.connected("bootstrap")
    stats.clients.connected("2")
    stats.clients.connected("2")
    stats.clients.connections["2"] -= 1
    stats.clients.software.came("librdkafka", "2.8.0")
    stats.certificates.uses("ssl.certificate.location", Validity(54, 55))
    stats.process.loop_delays.observe(0.003)
    stats.apis.unanswered(3)
    stats.process.spans["exported"] = 51
    stats.process.fleet_ignored["damaged"] = 2
    stats.clients.bytes_in, stats.clients.bytes_out = 11, 12
    stats.upstream.bytes_in, stats.upstream.bytes_out = 13, 14
    stats.produce.batches_stamped, stats.produce.records_stamped = 15, 16
    stats.produce.producer_ids_active, stats.produce.sends_in_flight, stats.upstream.connections_open = 17, 18, 19
    stats.produce.batches_converted["up", 1] = 20
    stats.produce.records_converted["down", 0] = 21
    stats.clients.connections_refused["max.connections"] = 22
    stats.clients.logins["PLAIN", "refused"] = 51
    stats.produce.resends["NOT_LEADER_OR_FOLLOWER"] = 23
    stats.kept.repairs["written"] = 231
    stats.kept.lost_records, stats.kept.left_out = 232, 233
    stats.refused.refusals["frame too long"] = 24
    stats.refused.authorization_refusals["Write", "Topic"] = 240
    stats.refused.throttles["request_rate"] = 241
    stats.refused.throttle_seconds["request_rate"] = 242.5
    stats.upstream.errors["connect"] = 25
    stats.retries.memory_bytes = 261
    stats.retries.in_doubt, stats.retries.records_matched, stats.retries.records_stripped = 26, 27, 28
    stats.retries.requests_dropped, stats.produce.requests_timed_out = 29, 30
    stats.retries.readbacks, stats.retries.readback_bytes = 31, 32
    stats.refused.count_http_refused("http", "origin")
    for _ in range(2):
        stats.refused.count_http_connection("control", "evicted")
    stats.retries.readbacks_failed["timeout"] = 33
    stats.retries.fences["refused"] = 34
    stats.retries.recoveries, stats.retries.recovery_seconds = 35, 36.5
    fill_transactions(stats.transactions)
    stats.apis.observe(0, 2, 0.003, 100, 10)
    stats.apis.observe(0, 2, 100.0, 200, 20)
    stats.apis.observe_legacy(0, 2, "shipper", "")
    return stats


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("kproxy_ready", {}, 1),
        ("kproxy_brokers", {}, 3),
        ("kproxy_connections", {"listener": "2"}, 1),
        ("kproxy_connections_limit", {}, 5),
        ("kproxy_certificate_not_before_timestamp_seconds", {"option": "ssl.certificate.location"}, 54),
        ("kproxy_certificate_not_after_timestamp_seconds", {"option": "ssl.certificate.location"}, 55),
        ("kproxy_connections_accepted_total", {"listener": "2"}, 2),
        (
            "kproxy_client_software_connections",
            {"client_software": "librdkafka", "client_software_version": "2.8.0"},
            1,
        ),
        ("kproxy_connections_refused_total", {"reason": "max.connections"}, 22),
        ("kproxy_client_logins_total", {"mechanism": "PLAIN", "result": "refused"}, 51),
        ("kproxy_upstream_connections", {}, 19),
        ("kproxy_requests_total", {"api_key": "Produce", "api_version": "2"}, 2),
        ("kproxy_request_duration_seconds_count", {"api_key": "Produce"}, 2),
        ("kproxy_request_duration_seconds_sum", {"api_key": "Produce"}, 100.003),
        ("kproxy_spans_total", {"outcome": "exported"}, 51),
        ("kproxy_request_bytes_total", {"api_key": "Produce"}, 300),
        ("kproxy_response_bytes_total", {"api_key": "Produce"}, 30),
        ("kproxy_requests_unanswered_total", {"api_key": "Metadata"}, 1),
        ("kproxy_loop_delay_seconds_count", {}, 1),
        ("kproxy_client_bytes_total", {"direction": "in"}, 11),
        ("kproxy_client_bytes_total", {"direction": "out"}, 12),
        ("kproxy_upstream_bytes_total", {"direction": "in"}, 13),
        ("kproxy_upstream_bytes_total", {"direction": "out"}, 14),
        ("kproxy_buffered_bytes", {}, 6),
        ("kproxy_buffered_bytes_limit", {}, 60),
        ("kproxy_batches_stamped_total", {}, 15),
        ("kproxy_records_stamped_total", {}, 16),
        ("kproxy_batches_converted_total", {"direction": "up", "magic": "1"}, 20),
        ("kproxy_records_converted_total", {"direction": "down", "magic": "0"}, 21),
        ("kproxy_producer_ids_active", {}, 17),
        ("kproxy_batches_in_flight", {}, 18),
        ("kproxy_epoch_bumps_total", {}, 7),
        ("kproxy_resends_total", {"reason": "NOT_LEADER_OR_FOLLOWER"}, 23),
        ("kproxy_sequence_repairs_total", {"reason": "written"}, 231),
        ("kproxy_lost_records_total", {}, 232),
        ("kproxy_sequences_left_out_total", {}, 233),
        ("kproxy_refusals_total", {"reason": "frame too long"}, 24),
        ("kproxy_http_requests_refused_total", {"listener": "http", "reason": "origin"}, 1),
        ("kproxy_http_connections_refused_total", {"listener": "control", "reason": "evicted"}, 2),
        ("kproxy_throttles_total", {"limit": "request_rate"}, 241),
        ("kproxy_throttles_total", {"limit": "consumer_byte_rate"}, 0),
        ("kproxy_throttle_seconds_total", {"limit": "request_rate"}, 242.5),
        ("kproxy_authorization_refusals_total", {"operation": "Write", "resource_type": "Topic"}, 240),
        ("kproxy_upstream_errors_total", {"kind": "connect"}, 25),
        ("kproxy_batches_in_doubt", {}, 26),
        ("kproxy_retry_memory_bytes", {}, 261),
        ("kproxy_records_matched_total", {}, 27),
        ("kproxy_records_stripped_total", {}, 28),
        ("kproxy_requests_dropped_total", {}, 29),
        ("kproxy_requests_timed_out_total", {}, 30),
        ("kproxy_readbacks_total", {}, 31),
        ("kproxy_readback_bytes_total", {}, 32),
        ("kproxy_readbacks_failed_total", {"reason": "timeout"}, 33),
        ("kproxy_fences_total", {"outcome": "refused"}, 34),
        ("kproxy_recoveries_total", {}, 35),
        ("kproxy_recovery_seconds_total", {}, 36.5),
        ("kproxy_transactions_open", {}, 41),
        ("kproxy_transactions_prepared", {}, 42),
        ("kproxy_transactional_ids", {}, 53),
        ("kproxy_transactions_torn_total", {}, 52),
        ("kproxy_transactions_committed_total", {}, 43),
        ("kproxy_transactions_fenced_total", {}, 44),
        ("kproxy_transactions_foreign_requests_total", {}, 56),
        ("kproxy_transactions_resumed_total", {}, 45),
        ("kproxy_transactions_continued_total", {}, 54),
        ("kproxy_transactions_unrecorded_total", {}, 55),
        ("kproxy_transactions_aborted_total", {"reason": "timeout"}, 1),
        ("kproxy_transaction_claims_total", {"outcome": "lost"}, 1),
        ("kproxy_transaction_append_seconds_count", {}, 1),
        ("kproxy_transaction_append_seconds_sum", {}, 0.003),
        ("kproxy_transaction_log_lag", {}, 45),
        ("kproxy_transaction_log_losses_total", {"reason": "truncated"}, 53),
        ("kproxy_transaction_log_load_seconds", {}, 46.5),
        ("kproxy_last_stable_offset_lag", {"topic": "orders", "partition": "3"}, 48),
        ("kproxy_hidden_bytes_total", {}, 47),
        ("kproxy_unknown_producer_ids", {}, 49),
        ("kproxy_producer_ids_rejected_total", {}, 50),
    ],
)
def test_every_counter_is_on_the_page(name: str, labels: dict[str, str], expected: float) -> None:
    assert value(filled(), name, **labels) == expected


def test_legacy_requests_name_the_client() -> None:
    labels = {"api_key": "Produce", "api_version": "2", "client_id": "shipper", "client_software": ""}
    assert value(filled(), "kproxy_legacy_requests_total", **labels) == 1


@pytest.mark.parametrize(("oldest", "age"), [(None, 0.0), (997.5, 2.5), (1001.0, 0.0)])
def test_the_oldest_has_an_age_that_is_never_negative(oldest: float | None, age: float) -> None:
    stats = Stats(
        produce=ProduceStats(oldest_unacknowledged=oldest),
        transactions=TransactionStats(oldest_open=oldest, oldest_unknown=oldest, prepared_until=oldest),
    )
    collector = StatsCollector(stats, now=lambda: 1000.0)
    found = {sample.name: sample.value for family in collector.collect() for sample in family.samples}
    assert found["kproxy_oldest_unacknowledged_seconds"] == age
    assert found["kproxy_transaction_oldest_seconds"] == age
    assert found["kproxy_unknown_producer_id_oldest_seconds"] == age
    left = math.inf if oldest is None else max(0.0, oldest - 1000.0)
    assert found["kproxy_transaction_prepared_seconds_left"] == left


def test_each_field_of_the_counters_has_its_test() -> None:
    told_otherwise = {"legacy_clients_max", "oldest_unacknowledged", "_legacy_clients"}
    untouched = Stats()
    for name in Stats.__slots__:
        assert name in told_otherwise or getattr(filled(), name) != getattr(untouched, name), name
    for name in TransactionStats.__slots__:
        same = getattr(filled().transactions, name) == getattr(untouched.transactions, name)
        assert not same or name in ("partitions_max", "oldest_open", "oldest_unknown"), name


def test_buckets_are_cumulative() -> None:
    buckets = [s for s in samples(filled()) if s.name == "kproxy_request_duration_seconds_bucket"]
    assert [float(sample.labels["le"]) for sample in buckets] == list(LATENCY_BUCKETS)
    assert [sample.value for sample in buckets if sample.labels["le"] in ("0.0025", "0.005", "30.0", "+Inf")] == [
        0,
        1,
        1,
        2,
    ]


def test_build_info() -> None:
    [info] = [sample for sample in samples(Stats()) if sample.name == "kproxy_build_info"]
    assert info.value == 1
    assert info.labels["version"] == __version__
    assert info.labels["accelerator"] == accelerator.STATE


def test_process_metrics() -> None:
    names = {sample.name for sample in samples(Stats())}
    assert {"process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"} <= names


def test_page_follows_the_counters() -> None:
    stats = Stats()
    registry = make_registry(stats)
    assert b"kproxy_brokers 0.0\n" in generate_latest(registry)
    stats.upstream.brokers = 3
    assert b"kproxy_brokers 3.0\n" in generate_latest(registry)


@pytest.mark.parametrize("stats", [Stats(), filled()], ids=["empty", "filled"])
async def test_page_is_strictly_valid_openmetrics(stats: Stats) -> None:
    page, headers = await MetricsPage(make_registry(stats)).render(OPENMETRICS, "")
    assert headers["content-type"].startswith("application/openmetrics-text")
    families = [family.name for family in parse_openmetrics(page.decode())]
    assert len(families) == len(set(families))


def test_the_page_of_the_documentation_lists_what_is_there() -> None:
    page = generate_latest(make_registry(filled())).decode()
    text = dict(re.findall(r"^# HELP (kproxy_\S+) (.*)$", page, re.MULTILINE))
    kinds = dict(re.findall(r"^# TYPE (kproxy_\S+) (.*)$", page, re.MULTILINE))
    labels: dict[str, str] = {}
    for name, inside in re.findall(r"^(kproxy_\w+){(.*)} ", page, re.MULTILINE):
        labels[name.removesuffix("_bucket")] = ", ".join(n for n in re.findall(r'(\w+)="', inside) if n != "le")
    expected = [f"| `{name}` | {kinds[name]} | {labels.get(name, '')} | {text[name]} |" for name in text]
    listed = re.findall(r"^\| `kproxy_\w+` \|.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(expected)


def test_nothing_that_clients_write_or_keep_secret_is_reported() -> None:
    labels = {name for sample in samples(filled()) for name in sample.labels}
    chosen_by_clients = {"client_id", "client_software", "client_software_version", "topic"}
    own_words = {"reason", "outcome", "kind", "direction", "magic", "api_key", "api_version", "partition", "le"}
    own_words |= {"operation", "resource_type", "limit", "option"}
    own_words |= {"mechanism", "result"}
    assert labels == chosen_by_clients | own_words | {"accelerator", "listener", "version", "python"}


def test_names_follow_the_rules_of_prometheus() -> None:
    page = generate_latest(make_registry(filled())).decode()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE):
        assert (kind == "counter") == name.endswith("_total")


@pytest.mark.parametrize("client_id", ['quo"te', "back\\slash", "new\nline", "\ud800", "\x00", "ü"])
def test_a_strange_client_id_harms_nothing(client_id: str) -> None:
    stats = Stats(upstream=UpstreamStats(brokers=2))
    stats.apis.observe_legacy(0, 0, client_id, client_id)
    stats.apis.observe_legacy(0, 0, "?", "?")
    labels = {"api_key": "Produce", "api_version": "0"}
    found = [sample for sample in samples(stats) if sample.name == "kproxy_legacy_requests_total"]
    assert sum(sample.value for sample in found) == 2
    assert all(sample.labels.items() >= labels.items() for sample in found)
    assert value(stats, "kproxy_brokers") == 2
