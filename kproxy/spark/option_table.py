"""The options of Spark's own Kafka connector (4.x) and of this one: what is taken, and why something is not.

``docs/spark-options.md`` is made of this table, and the source takes its names from it.
"""

from typing import Final, NamedTuple


class SparkOption(NamedTuple):
    """One option, or several that are explained together."""

    names: tuple[str, ...]
    default: str
    text: str


def _option(names: str, default: str, text: str) -> SparkOption:
    return SparkOption(tuple(names.split()), default, text)


SOURCE: Final = (
    _option("kafka.bootstrap.servers", "required", "`host:port` of kproxy, or of brokers; several joined by commas"),
    _option(
        "subscribe subscribePattern assign",
        "one of the three",
        "topics joined by commas; a pattern that whole names match, never those of the brokers' own topics; "
        '`{"orders": [0, 1]}`',
    ),
    _option(
        "startingOffsets",
        "`latest` for streams, `earliest` for tables",
        '`earliest`, `latest`, or `{"orders": {"0": 23, "1": -2}}` with -2 for earliest and -1 for latest; all '
        "partitions must be given",
    ),
    _option(
        "startingTimestamp startingOffsetsByTimestamp",
        "",
        'instead: a time in ms for all partitions; for each, `{"orders": {"0": 1700000000000}}`',
    ),
    _option(
        "startingOffsetsByTimestampStrategy",
        "`error`",
        "where no record is as young as the starting time: `error`, or `latest` to begin at the end",
    ),
    _option(
        "endingOffsets endingTimestamp endingOffsetsByTimestamp",
        "`latest`",
        "the same for the end of a table; where no record is as young, the end",
    ),
    _option(
        "maxOffsetsPerTrigger",
        "",
        "the most offsets of a micro-batch, shared out by what each partition has. Higher: fewer, larger batches",
    ),
    _option(
        "minOffsetsPerTrigger",
        "",
        "a micro-batch waits until there are so many new offsets, or `maxTriggerDelay` has passed. Not with "
        "`availableNow`",
    ),
    _option(
        "maxTriggerDelay",
        "`15m`",
        "the longest wait of a micro-batch for `minOffsetsPerTrigger`: `30s`, `15m`, `1h`",
    ),
    _option("minPartitions", "1", "the number of tasks aimed at: big partitions are cut"),
    _option("maxRecordsPerPartition", "", "the most offsets that a task reads: larger partitions are cut"),
    _option(
        "failOnDataLoss",
        "`true`",
        "`true`: deleted records or topics are an error; `false`: a warning in the log",
    ),
    _option("includeHeaders", "`false`", "a column `headers`"),
    _option(
        "isolation.level kafka.isolation.level",
        "`read_committed`",
        "`read_uncommitted`, Spark's own default, shows undecided and aborted records, too",
    ),
    _option("records.as", "`records`", "`batches`: one row for each record batch"),
    _option("kafka.client.id", "`kproxy-spark`", "what brokers and kproxy know the source by"),
    _option("kafka.request.timeout.ms", "30000", "the longest wait for one response"),
    _option(
        "kafka.fetch.max.bytes kafka.max.partition.fetch.bytes",
        "4194304",
        "bytes of one response, the smaller of both, but at least one batch. Higher: fewer requests, more memory",
    ),
    _option(
        "kafkaConsumer.pollTimeoutMs",
        "120000",
        "how long a task retries without progress",
    ),
    _option("maxDecompressedBytes", "134217728", "the largest size of a batch after decompression"),
)
"""What the source takes, beside the options of security."""

_NO_GROUP: Final = "the source is no member of a consumer group; Spark keeps its offsets"
_RANGES: Final = "each task knows the offsets that it reads, and waits for nothing else"
BOTH_NO_EFFECT: Final = (
    _option(
        "kafka.retry.backoff.ms kafka.retry.backoff.max.ms kafka.reconnect.backoff.ms kafka.reconnect.backoff.max.ms "
        "kafka.metadata.max.age.ms kafka.connections.max.idle.ms kafka.socket.connection.setup.timeout.ms "
        "kafka.socket.connection.setup.timeout.max.ms",
        "",
        "the timeouts above bound all waiting",
    ),
    _option(
        "kafka.client.dns.lookup kafka.metadata.recovery.strategy kafka.metadata.recovery.rebootstrap.trigger.ms",
        "",
        "if no known broker answers, `kafka.bootstrap.servers` is asked again",
    ),
    _option("kafka.receive.buffer.bytes kafka.send.buffer.bytes", "", "the operating system sizes the buffers"),
    _option(
        "kafka.metric.reporters kafka.metrics.num.samples kafka.metrics.recording.level "
        "kafka.metrics.sample.window.ms kafka.auto.include.jmx.reporter kafka.enable.metrics.push",
        "",
        "no Java client reports metrics; see [progress and lag](spark.md#progress-and-lag)",
    ),
)
"""Taken by source and sink, so that a query need not be changed, and without effect."""

NO_EFFECT: Final = (
    _option(
        "groupIdPrefix kafka.group.id kafka.session.timeout.ms kafka.heartbeat.interval.ms kafka.max.poll.interval.ms "
        "kafka.partition.assignment.strategy kafka.group.instance.id kafka.group.protocol kafka.group.remote.assignor "
        "kafka.auto.commit.interval.ms",
        "",
        _NO_GROUP,
    ),
    _option("kafka.max.poll.records kafka.fetch.min.bytes kafka.fetch.max.wait.ms", "", _RANGES),
    _option(
        "fetchOffset.numRetries fetchOffset.retryIntervalMs kafka.default.api.timeout.ms",
        "",
        "`kafka.request.timeout.ms` and `kafkaConsumer.pollTimeoutMs` bound all waiting",
    ),
    _option("kafka.client.rack", "", "the source reads from the leaders of the partitions"),
    _option("kafka.check.crcs", "", "each batch is checked"),
    _option("kafka.allow.auto.create.topics", "", "reading creates no topic"),
    _option("kafka.exclude.internal.topics", "", "a pattern never matches the brokers' own topics"),
    *BOTH_NO_EFFECT,
)
"""Taken by the source, so that a query need not be changed, and without effect."""

_NO_CLASSES: Final = "Java classes cannot be used"
_TLS: Final = "Python's defaults decide: TLS 1.2 or later, and its ciphers"
SECURITY_REFUSED: Final = (
    _option(
        "kafka.sasl.kerberos.service.name kafka.sasl.kerberos.kinit.cmd",
        "",
        "Kerberos (GSSAPI) is not supported; valid mechanisms: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER",
    ),
    _option(
        "kafka.sasl.client.callback.handler.class kafka.sasl.login.class kafka.ssl.engine.factory.class "
        "kafka.security.providers kafka.ssl.provider kafka.ssl.secure.random.implementation kafka.config.providers",
        "",
        _NO_CLASSES,
    ),
    _option("kafka.ssl.protocol kafka.ssl.enabled.protocols kafka.ssl.cipher.suites", "", _TLS),
)
"""Refused by source and sink, with the reason."""

_AS_SPARK: Final = "Spark's own connector refuses it, too"
REFUSED: Final = (
    _option("kafka.auto.offset.reset", "", f"{_AS_SPARK}: set `startingOffsets`"),
    _option(
        "kafka.key.deserializer kafka.value.deserializer kafka.enable.auto.commit kafka.interceptor.classes",
        "",
        f"{_AS_SPARK}: columns are bytes, and Spark keeps the offsets",
    ),
    *SECURITY_REFUSED,
)
"""Refused by the source, with the reason."""

SINK: Final = (
    _option(
        "kafka.bootstrap.servers",
        "required",
        "`host:port` of the kproxy with this control API, as driver and executors reach it. A broker, or another "
        "kproxy, is [refused](spark.md#one-kproxy)",
    ),
    _option("kproxy.control.socket", "`/run/kproxy/control.sock`", "the control API of the same kproxy, on each node"),
    _option(
        "kproxy.control.url kproxy.control.token.file",
        "",
        "instead: `https://kproxy.example:19645` or `http://127.0.0.1:19645`; a file with the token, on each node",
    ),
    _option(
        "kproxy.control.ssl.ca.location",
        "the system's",
        "authorities of the control API's certificate: a PEM file on each node",
    ),
    _option("topic", "", "for all rows, before the column"),
    _option(
        "kafka.allow.auto.create.topics",
        "`false`",
        "`true`: a broker with `auto.create.topics.enable` creates a missing topic; `false`: the query fails",
    ),
    _option(
        "transactional.id",
        "streams: from `checkpointLocation`",
        "the query's name at kproxy: one for each query, the same after each restart",
    ),
    _option(
        "transaction.timeout.ms",
        "900000",
        "how long a task may write; at most kproxy's `transaction.max.timeout.ms`",
    ),
    _option(
        "kproxy.retry.timeout.ms",
        "120000",
        "how long driver and tasks wait for kproxy; 10 s when a query starts",
    ),
    _option("batch.id", "", "of `df.write`: a write under an id that was committed before changes nothing"),
    _option("includeHeaders", "", "no effect, as in Spark's own sink: a column `headers` is always written"),
    _option("kafka.compression.type", "`none`", "`none`, `gzip`, `snappy`, `lz4` or `zstd`"),
    _option("kafka.compression.gzip.level kafka.compression.zstd.level", "6; 3", "1 to 9; 1 to 22"),
    _option("kafka.batch.size", "1000000", "bytes of a batch before compression"),
    _option("kafka.max.request.size", "1048576", "bytes of a request, and of a record"),
)
"""What the sink takes, beside the options of security."""

SINK_NO_EFFECT: Final = (
    _option("kafka.max.block.ms", "", "`kproxy.retry.timeout.ms` and `transaction.timeout.ms` bound all waiting"),
    _option("kafka.linger.ms", "", "a batch is sent when it is full, or its task ends"),
    _option("kafka.compression.lz4.level", "", "the fastest"),
    _option(
        "kafka.metadata.max.idle.ms kafka.partitioner.adaptive.partitioning.enable "
        "kafka.partitioner.availability.timeout.ms",
        "",
        "each attempt of a task has its own connections",
    ),
    *BOTH_NO_EFFECT,
)
"""Taken by the sink, so that a query need not be changed, and without effect."""

_OWN: Final = "exactly-once depends on it, and the sink sets it"
SINK_REFUSED: Final = (
    _option(
        "kafka.acks kafka.enable.idempotence",
        "",
        f"{_OWN}: only `all` and `true` are taken",
    ),
    _option(
        "kafka.retries kafka.max.in.flight.requests.per.connection kafka.delivery.timeout.ms kafka.request.timeout.ms "
        "kafka.client.id",
        "",
        _OWN,
    ),
    _option("kafka.transactional.id kafka.transaction.timeout.ms", "", "write it without `kafka.`"),
    _option("kafka.key.serializer kafka.value.serializer", "", f"{_AS_SPARK}: columns are bytes or text"),
    _option("kafka.buffer.memory", "", "the sink bounds its memory itself"),
    _option(
        "kafka.partitioner.class kafka.partitioner.ignore.keys",
        "",
        "the column `partition` decides, else the key as with Java's default partitioner",
    ),
    _option("kafka.interceptor.classes", "", _NO_CLASSES),
    _option("kafka.transaction.two.phase.commit.enable", "", "kproxy decides the transaction"),
    *SECURITY_REFUSED,
)
"""Refused by the sink, with the reason."""
