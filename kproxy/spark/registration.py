"""Makes the format ``kproxy`` known to a session of Spark."""

from typing import TYPE_CHECKING, Final

from pyspark.sql.utils import is_remote

from kproxy.spark.save_mode import append_by_default
from kproxy.spark.source import KproxyDataSource
from kproxy.spark.start_check import check_at_start

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_REDACTION: Final = "spark.sql.redaction.options.regex"
_REDACTED_BY_DEFAULT: Final = "(?i)url"
_SECRETS: Final = r"(?i)password|secret|token|jaas[.]config|keystore[.]key"


def register(spark: "SparkSession") -> None:
    """Make ``format("kproxy")`` known to this session, for batch and streaming, reading and writing."""
    if not is_remote():
        _complete_environment(spark.sparkContext)
        check_at_start(KproxyDataSource.name(), _check_stream)
    append_by_default(KproxyDataSource.name())
    _redact(spark)
    spark.dataSource.register(KproxyDataSource)


def _check_stream(options: dict[str, str], schema: "StructType", mode: str) -> None:
    from kproxy.spark.sink import check_stream  # a session that only reads needs no producer

    check_stream(options, schema, mode)


def _redact(spark: "SparkSession") -> None:
    """Hide the values of options that hold secrets from plans and the web UI, unless the user has a rule for that."""
    # Spark Connect does not know the default
    if spark.conf.get(_REDACTION, _REDACTED_BY_DEFAULT) == _REDACTED_BY_DEFAULT:
        spark.conf.set(_REDACTION, f"{_REDACTED_BY_DEFAULT}|{_SECRETS}")


def _complete_environment(context: "SparkContext") -> None:
    """Set the variables that Spark adds to the environment of its Python workers when a streaming source starts.

    All sources of a format share one map of variables (``PythonFunction.envVars``, a Java HashMap). Spark's
    PythonStreamingSourceRunner adds up to four entries when a query starts. If another query's task is serialized at
    that moment it is damaged, and the query fails with OptionalDataException. Replacing the values of entries that are
    there already is harmless.
    """
    conf = context.getConf()
    context.environment.setdefault("SPARK_LOCAL_DIRS", str(conf.get("spark.local.dir", "/tmp")))
    context.environment.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", "15")
    context.environment.setdefault("SPARK_BUFFER_SIZE", str(conf.get("spark.buffer.size", "65536")))
    # Since Spark 4.3; earlier workers do not read it.
    context.environment.setdefault("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
