"""The jars of Spark's own Kafka connector and of its format Avro, resolved by Maven as Kafka's are."""

from pathlib import Path
from typing import Final

from kproxy.testing.maven import maven_jars

# The newest release that Maven Central has for Scala 2.13; it works with the sessions of later versions. Its helper
# for delegation tokens, of which none are used here, is not there for each release: this one is.
_VERSION: Final = "4.2.0"
_TOKENS_VERSION: Final = "4.0.0"
# Spark, Hadoop and Scala come with PySpark.
_DEPENDENCIES: Final = f"""
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{_VERSION}</version>
      <exclusions>
        <exclusion><groupId>org.apache.spark</groupId><artifactId>*</artifactId></exclusion>
        <exclusion><groupId>org.apache.hadoop</groupId><artifactId>*</artifactId></exclusion>
        <exclusion><groupId>org.scala-lang</groupId><artifactId>*</artifactId></exclusion>
      </exclusions>
    </dependency>
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>spark-token-provider-kafka-0-10_2.13</artifactId>
      <version>{_TOKENS_VERSION}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
"""
# The newest release that Maven Central has for Scala 2.13; it works with the sessions of later versions, too.
_AVRO_VERSION: Final = "4.1.1"
_AVRO: Final = f"""
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>spark-avro_2.13</artifactId><version>{_AVRO_VERSION}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
"""
# Spark's POM names a mirror by this id, which is asked first and not reached from everywhere.
_REPOSITORIES: Final = """
    <repository><id>gcs-maven-central-mirror</id><url>https://repo.maven.apache.org/maven2</url></repository>
"""


def connector_jars() -> list[Path]:
    """The jars for ``spark.jars``.

    :raises Unavailable: no Maven or Java, or the artefacts do not resolve.
    """
    name = f"spark-kafka-connector-{_VERSION}"
    return sorted(maven_jars(name, f"Spark's Kafka connector {_VERSION}", _DEPENDENCIES, _REPOSITORIES).glob("*.jar"))


def avro_jars() -> list[Path]:
    """The jars of ``from_avro``; Spark itself has what they need. Unavailable."""
    return sorted(maven_jars(f"spark-avro-{_AVRO_VERSION}", "Avro for Spark", _AVRO, _REPOSITORIES).glob("*.jar"))
