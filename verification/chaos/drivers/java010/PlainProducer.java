// The Java producer of Kafka 0.10: Produce v2, message sets of magic 1, retries, no idempotence.
// A job comes in, operations go out, as of the other drivers (operations.py).

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class PlainProducer {
    static class Job {
        String name;
        String bootstrap;
        List<List<String>> places;
        int per_second;
        int in_flight;
    }

    private static final Gson GSON = new GsonBuilder().serializeNulls().create();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Job job = GSON.fromJson(input.readLine(), Job.class);
        Thread end = new Thread(() -> untilEnded(input));
        end.setDaemon(true);
        end.start();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(configs(job), new StringSerializer(), new StringSerializer())) {
            for (int number = 1; end.isAlive(); number++) {
                send(producer, job, number);
                end.join(Math.max(1, 1000 / job.per_second));
            }
        }
    }

    private static void untilEnded(BufferedReader input) {
        try {
            while (input.readLine() != null) {
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static Map<String, Object> configs(Job job) {
        Map<String, Object> configs = new HashMap<>();
        configs.put("bootstrap.servers", job.bootstrap);
        configs.put("client.id", job.name);
        configs.put("acks", "all");
        configs.put("retries", 1_000_000);
        configs.put("retry.backoff.ms", 100);
        configs.put("request.timeout.ms", 6000);
        configs.put("max.block.ms", 60_000);
        configs.put("linger.ms", 20);
        configs.put("metadata.max.age.ms", 5000);
        configs.put("max.in.flight.requests.per.connection", job.in_flight);
        return configs;
    }

    private static void send(KafkaProducer<String, String> producer, Job job, int number) {
        List<String> place = job.places.get(number % job.places.size());
        String topic = place.get(0);
        int partition = Integer.parseInt(place.get(1));
        String value = job.name + ":" + number;
        long invoke = System.nanoTime();
        producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, error) -> {
            Map<String, Object> operation = new HashMap<>();
            operation.put("process", job.name);
            operation.put("kind", "send");
            operation.put("outcome", error == null ? "ok" : "info");
            operation.put("invoke", invoke);
            operation.put("complete", System.nanoTime());
            Long offset = error == null && metadata.offset() >= 0 ? metadata.offset() : null;
            operation.put("sends", Arrays.asList(Arrays.asList(topic, partition, offset, value)));
            operation.put("error", error == null ? "" : error.getClass().getSimpleName());
            System.out.println(GSON.toJson(operation));
        });
    }
}
