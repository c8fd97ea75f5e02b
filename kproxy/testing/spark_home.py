"""A home for Spark's processes that run for seconds: drivers, executors and Python workers of tests.

Their Java compiles with the quick compiler alone: the thorough one does not finish before they end, and takes processor
time from the others. Their Python imports the installed PySpark, whose modules are compiled, not the archive that Spark
puts before it, of which every process would compile each module again.
"""

from pathlib import Path
from typing import Final

#: The quick compiler alone would have a fifth of the room for code, and throw away what is still in use.
_QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
#: All of an installed PySpark that Spark looks for in its home, but for the archives of ``python/lib``.
_PARTS: Final = ("bin", "data", "jars", "sbin")


def make_spark_home(home: Path) -> Path:
    """Makes the directory if it is not there, with links to what is installed; what processes name ``SPARK_HOME``."""
    import pyspark

    installed = Path(next(iter(pyspark.__path__)))
    if not home.exists():
        conf = home / "conf"
        conf.mkdir(parents=True)
        for part in _PARTS:
            (home / part).symlink_to(installed / part)
        settings = [f"spark.{of}.extraJavaOptions {_QUICK_JAVA}\n" for of in ("driver", "executor")]
        (conf / "spark-defaults.conf").write_text("".join(settings), encoding="utf-8")
    return home
