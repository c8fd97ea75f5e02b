"""Appenders for Kafka of Java's logging libraries, in a program that logs what it reads."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from verification.agents.agent import TOPIC, ReadsInput
from verification.agents.java import JavaAgent
from verification.agents.packages import Unpacked

__all__ = ["Log4j1", "Log4j2", "Logback"]

_PROGRAM: Final = Path(__file__).with_name("LogLines.java")


class _Appender(JavaAgent, ReadsInput):
    """Only the logger ``lines`` writes to Kafka: the client's own log would otherwise be written by the client."""

    @abstractmethod
    def option(self) -> str:
        """Writes its configuration; the option of Java that names it."""

    def command(self, unpacked: Unpacked) -> Sequence[str]:
        return self.java(unpacked, self.option(), str(_PROGRAM))


class Log4j2(_Appender):
    """The appender of log4j-core; by default it waits for each line's acknowledgement."""

    name = "log4j2"
    title = "log4j-core `Kafka`"
    release = "2.26.1"
    artefacts = (
        f"org.apache.logging.log4j:log4j-core:{release}",
        f"org.apache.logging.log4j:log4j-slf4j-impl:{release}",
        "org.apache.kafka:kafka-clients:2.8.2",
    )
    lines = 2_000

    def option(self) -> str:
        path = self.settings(
            "log4j2.xml",
            f"""<Configuration status="warn">
  <Appenders>
    <Kafka name="kafka" topic="{TOPIC}">
      <PatternLayout pattern="%m"/>
      <Property name="bootstrap.servers">{self.bootstrap}</Property>
    </Kafka>
    <Console name="console"><PatternLayout pattern="%d %p %c %m%n"/></Console>
  </Appenders>
  <Loggers>
    <Logger name="lines" level="info" additivity="false"><AppenderRef ref="kafka"/></Logger>
    <Root level="warn"><AppenderRef ref="console"/></Root>
  </Loggers>
</Configuration>
""",
        )
        return f"-Dlog4j2.configurationFile={path}"


class Logback(_Appender):
    """The appender of logback-kafka-appender. By default its Kafka client (1.0.0) does not retry."""

    name = "logback"
    title = "logback-kafka-appender"
    needs = "`retries`, `max.in.flight.requests.per.connection=1`"
    release = "0.2.0-RC2"
    artefacts = (f"com.github.danielwegener:logback-kafka-appender:{release}", "ch.qos.logback:logback-classic:1.2.13")

    def option(self) -> str:
        package = "com.github.danielwegener.logback.kafka"
        path = self.settings(
            "logback.xml",
            f"""<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %p %c %m%n</pattern></encoder>
  </appender>
  <appender name="kafka" class="{package}.KafkaAppender">
    <encoder><pattern>%msg</pattern></encoder>
    <topic>{TOPIC}</topic>
    <keyingStrategy class="{package}.keying.NoKeyKeyingStrategy"/>
    <deliveryStrategy class="{package}.delivery.AsynchronousDeliveryStrategy"/>
    <producerConfig>bootstrap.servers={self.bootstrap}</producerConfig>
    <producerConfig>retries=2147483647</producerConfig>
    <producerConfig>max.in.flight.requests.per.connection=1</producerConfig>
    <appender-ref ref="console"/>
  </appender>
  <logger name="lines" level="info" additivity="false"><appender-ref ref="kafka"/></logger>
  <root level="warn"><appender-ref ref="console"/></root>
</configuration>
""",
        )
        return f"-Dlogback.configurationFile={path}"


class Log4j1(_Appender):
    """The appender that Kafka has for log4j 1.2 until Kafka 3."""

    name = "log4j1"
    title = "kafka-log4j-appender"
    release = "2.8.2"
    artefacts = (f"org.apache.kafka:kafka-log4j-appender:{release}",)

    def option(self) -> str:
        path = self.settings(
            "log4j.properties",
            f"""log4j.rootLogger=WARN, console
log4j.logger.lines=INFO, kafka
log4j.additivity.lines=false
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %c %m%n
log4j.appender.kafka=org.apache.kafka.log4jappender.KafkaLog4jAppender
log4j.appender.kafka.brokerList={self.bootstrap}
log4j.appender.kafka.topic={TOPIC}
log4j.appender.kafka.layout=org.apache.log4j.PatternLayout
log4j.appender.kafka.layout.ConversionPattern=%m
""",
        )
        return f"-Dlog4j.configuration=file:{path}"
