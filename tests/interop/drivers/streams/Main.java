import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams applications, in one process until it is killed.
 *
 * Arguments: bootstrap servers, a directory for state, a guarantee, a group protocol, then `KIND:APPLICATION:SOURCE:TARGET` for each.
 * `count` tells each word's number whenever it is met, `upper` is stateless. A failure is one line `FAILED APPLICATION ...`.
 */
public final class Main {
    private Main() {
    }

    public static void main(String[] arguments) throws InterruptedException {
        for (int i = 4; i < arguments.length; i++) {
            String[] fields = arguments[i].split(":");
            start(topology(fields[0], fields[2], fields[3]), settings(arguments, fields[1]), fields[1]);
        }
        Thread.currentThread().join();
    }

    private static Topology topology(String kind, String source, String target) {
        StreamsBuilder builder = new StreamsBuilder();
        // Slow enough to be killed in between.
        KStream<String, String> words = builder.<String, String>stream(source).peek((key, word) -> pause());
        if (kind.equals("count")) {
            words.selectKey((key, word) -> word)
                    .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
                    .count()
                    .toStream()
                    .mapValues(count -> Long.toString(count))
                    .to(target, Produced.with(Serdes.String(), Serdes.String()));
        } else {
            words.mapValues(word -> word.toUpperCase(java.util.Locale.ROOT)).to(target);
        }
        return builder.build();
    }

    private static void pause() {
        try {
            Thread.sleep(1);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    private static Properties settings(String[] arguments, String application) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("state.dir", arguments[1]);
        settings.put("processing.guarantee", arguments[2]);
        settings.put("application.id", application);
        settings.put("default.key.serde", Serdes.String().getClass().getName());
        settings.put("default.value.serde", Serdes.String().getClass().getName());
        settings.put("commit.interval.ms", "50");
        settings.put("cache.max.bytes.buffering", "0");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("num.stream.threads", "1");
        // Who comes again under its name takes the killed one's place at once.
        if (arguments[3].equals("classic")) {
            settings.put("group.instance.id", "1");
        } else {
            settings.put("group.protocol", arguments[3]);
        }
        // A stateless application has another transactional id when it comes again: this long it waits for the former.
        settings.put("producer.transaction.timeout.ms", "3000");
        settings.put("consumer.auto.offset.reset", "earliest");
        return settings;
    }

    private static void start(Topology topology, Properties settings, String application) {
        KafkaStreams streams = new KafkaStreams(topology, settings);
        streams.setUncaughtExceptionHandler(failure -> {
            StringBuilder line = new StringBuilder("FAILED ").append(application);
            for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
                line.append("; ").append(String.valueOf(cause).replace('\n', ' '));
            }
            System.out.println(line);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
    }
}
