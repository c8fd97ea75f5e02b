"""The options that a pipeline gives to the data source ``kproxy``, for its sources and for its one sink of topics."""

from collections.abc import Iterator

from kproxy.config.config_faults import Location
from kproxy.spark.pipeline.pipeline_model import Kafka, Pipeline, TopicSource
from kproxy.spark.read_options import read_options
from kproxy.spark.sink_options import parse
from kproxy.spark.spark_errors import OptionError


def source_options(source: TopicSource, kafka: Kafka) -> dict[str, str]:
    """For ``readStream``."""
    options = {**_where(kafka), **source.options}
    if source.pattern is None:
        options["subscribe"] = ",".join(source.topics)
    else:
        options["subscribePattern"] = source.pattern
    options["startingOffsets"] = source.starting_offsets
    if source.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(source.max_offsets_per_trigger)
    return options


def _where(kafka: Kafka) -> dict[str, str]:
    security = {f"kafka.{name}": value for name, value in kafka.security.items()}
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, **security}


def sink_options(kafka: Kafka) -> dict[str, str]:
    """For ``writeStream``."""
    where = {
        "kproxy.control.url": kafka.control_url,
        "kproxy.control.socket": kafka.control_socket,
        "kproxy.control.token.file": kafka.token_file,
    }
    options = {**_where(kafka), "transactional.id": kafka.transactional_id}
    options |= {name: value for name, value in where.items() if value is not None}
    return options | {f"kafka.{name}": value for name, value in kafka.producer.items()}


def option_faults(pipeline: Pipeline) -> Iterator[tuple[Location, str]]:
    """What the data source would say against its options when the pipeline starts."""
    kafka = pipeline.kafka
    if kafka is None:
        return
    for source in pipeline.sources:
        if isinstance(source, TopicSource):
            try:
                read_options(source_options(source, kafka)).check_stream()
            except OptionError as error:
                yield source.place, str(error)
    for sink in pipeline.topic_sinks[:1]:
        try:
            parse(sink_options(kafka), is_stream=True)
        except OptionError as error:
            yield sink.place, str(error)
