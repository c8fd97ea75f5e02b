"""A home for Spark's processes that run for seconds: drivers, executors and Python workers of tests.

Their Java compiles with the quick compiler alone: the thorough one does not finish before they end, and takes processor
time from the others. It maps Spark's classes from their archive if ``python -m kproxy.testing.archive_spark`` made one.
Their Python imports the installed PySpark, whose modules are compiled, not the archive that Spark puts before it, of
which every process would compile each module again.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kproxy.testing.class_archive import archive_of, sharing
from kproxy.testing.maven import QUICK_JVM, find_java

#: The quick compiler alone would have a fifth of the room for code, and throw away what is still in use.
_ROOM: Final = "-XX:ReservedCodeCacheSize=240m"
#: All of an installed PySpark that Spark looks for in its home, but for the archives of ``python/lib``. There is no
#: ``conf``: Java shares no classes if a directory with files is on its class path.
_PARTS: Final = ("bin", "data", "jars", "sbin")


def make_spark_home(home: Path) -> Path:
    """Makes the directory if it is not there, with links to what is installed; what processes name ``SPARK_HOME``."""
    if not home.exists():
        home.mkdir(parents=True)
        for part in _PARTS:
            (home / part).symlink_to(installed_spark() / part)
    return home


def spark_environment(home: Path) -> dict[str, str]:
    """What the environment of Spark's processes has beside all else. Unavailable without Java."""
    return {
        "JAVA_HOME": str(Path(find_java()).resolve().parent.parent),
        "SPARK_HOME": str(home),
        "SPARK_SUBMIT_OPTS": submit_options(sharing(spark_archive())),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def submit_options(more: Sequence[str]) -> str:
    """``SPARK_SUBMIT_OPTS``: Java's options for a driver and its executors."""
    options = " ".join((*QUICK_JVM, _ROOM, *more))
    return f'{options} "-Dspark.executor.extraJavaOptions={options}"'


def spark_archive() -> Path:
    """Where the archive of Spark's classes lies: in the PySpark whose jars it belongs to. It may not exist."""
    import pyspark

    return archive_of(f"spark-{pyspark.__version__}", find_java(), installed_spark())


def installed_spark() -> Path:
    """The directory of the installed PySpark."""
    import pyspark

    return Path(next(iter(pyspark.__path__)))
