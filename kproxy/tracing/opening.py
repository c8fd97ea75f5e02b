"""Opens tracing if the options ask for it; imports what tracing needs only in that case."""

from kproxy.config import ExitCode, StartupError
from kproxy.config.process_options import TraceOptions
from kproxy.proxy.process_stats import ProcessStats
from kproxy.tracing.collector import Collector, Limits


def open_tracing(config: TraceOptions, stats: ProcessStats) -> Collector | None:
    """None if it is off. StartupError if what it needs is not installed."""
    endpoint = config.otel_exporter_otlp_endpoint
    if endpoint is None:
        return None
    try:
        from kproxy.tracing.otlp import OtlpExporter
    except ModuleNotFoundError as error:
        raise StartupError(
            f"otel.exporter.otlp.endpoint = '{endpoint}' needs the package {error.name}: pip install 'kproxy[otel]'",
            ExitCode.USAGE,
        ) from None
    exporter = OtlpExporter(endpoint, config.otel_service_name, config.instance_id)
    limits = Limits(
        ratio=config.otel_traces_sampler_arg,
        queue=config.otel_bsp_max_queue_size,
        batch=config.otel_bsp_max_export_batch_size,
        delay_s=config.otel_bsp_schedule_delay_ms / 1000,
    )
    return Collector(exporter, limits, stats)
