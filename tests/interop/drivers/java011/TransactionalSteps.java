import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** Transactions of 0.11 and later. Only what names the consumer's group has changed since (KIP-447). */
public final class TransactionalSteps extends NewSteps {
    public TransactionalSteps(JsonObject job) {
        super(job);
    }

    @Override
    public JsonObject run(JsonObject step) throws Exception {
        switch (step.get("op").getAsString()) {
            case "transactions":
                return transactions(step);
            case "transform":
                return transform(step);
            default:
                return super.run(step);
        }
    }

    private KafkaProducer<byte[], byte[]> open(JsonObject step) {
        Properties properties = producerProperties(step);
        properties.put("transactional.id", step.get("id").getAsString());
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties);
        producer.initTransactions();
        return producer;
    }

    private JsonObject transactions(JsonObject step) {
        Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
        JsonArray outcomes = new JsonArray();
        for (JsonElement element : step.getAsJsonArray("script")) {
            JsonObject action = element.getAsJsonObject();
            try {
                act(step, action, producers);
                outcomes.add(JsonNull.INSTANCE);
            } catch (Exception failure) {
                outcomes.add(chain(failure));
                if (!action.has("fails")) {
                    break;
                }
            }
        }
        for (KafkaProducer<byte[], byte[]> producer : producers.values()) {
            producer.close();
        }
        JsonObject result = new JsonObject();
        result.add("outcomes", outcomes);
        return result;
    }

    private static String chain(Throwable failure) {
        List<String> causes = new ArrayList<>();
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            causes.add(cause.toString());
        }
        return String.join("; caused by ", causes);
    }

    private void act(JsonObject step, JsonObject action, Map<String, KafkaProducer<byte[], byte[]>> producers)
            throws Exception {
        KafkaProducer<byte[], byte[]> producer = producers.get(action.get("on").getAsString());
        switch (action.get("do").getAsString()) {
            case "open":
                producers.put(action.get("on").getAsString(), open(step));
                break;
            case "begin":
                producer.beginTransaction();
                break;
            case "produce":
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (JsonElement fields : action.getAsJsonArray("records")) {
                    sent.add(producer.send(record(action.get("topic").getAsString(), fields.getAsJsonObject())));
                }
                if (action.has("wait")) {
                    await(sent, step);
                }
                break;
            case "commit":
                producer.commitTransaction();
                break;
            case "abort":
                producer.abortTransaction();
                break;
            case "wait":
                awaitFile(Paths.get(action.get("path").getAsString()), step);
                break;
            default:
                throw new IllegalArgumentException("action " + action.get("do"));
        }
    }

    private static void awaitFile(Path path, JsonObject step) throws InterruptedException, TimeoutException {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(step.get("timeout_ms").getAsLong());
        while (!Files.exists(path)) {
            if (System.nanoTime() > deadline) {
                throw new TimeoutException(path + " is not there");
            }
            Thread.sleep(20);
        }
    }

    private static void await(List<Future<RecordMetadata>> sent, JsonObject step)
            throws ExecutionException, InterruptedException, TimeoutException {
        for (Future<RecordMetadata> future : sent) {
            future.get(step.get("timeout_ms").getAsLong(), TimeUnit.MILLISECONDS);
        }
    }

    private JsonObject transform(JsonObject step) throws Exception {
        int left = step.get("count").getAsInt();
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(step.get("timeout_ms").getAsLong());
        Deque<ConsumerRecord<byte[], byte[]>> read = new ArrayDeque<>();
        KafkaProducer<byte[], byte[]> producer = open(step);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(consumerProperties(step))) {
            consumer.subscribe(Collections.singletonList(step.get("source").getAsString()));
            while (left > 0) {
                int size = Math.min(left, step.get("per").getAsInt());
                while (read.size() < size) {
                    if (System.nanoTime() > deadline) {
                        throw new TimeoutException(left + " records not read");
                    }
                    poll(consumer).forEach(read::add);
                }
                left -= size;
                one(step, producer, consumer, read, size);
                end(producer, left > 0 ? "commit" : step.get("ending").getAsString());
            }
        } finally {
            producer.close();
        }
        return new JsonObject();
    }

    private static void one(JsonObject step, KafkaProducer<byte[], byte[]> producer,
            KafkaConsumer<byte[], byte[]> consumer, Deque<ConsumerRecord<byte[], byte[]>> read, int size)
            throws Exception {
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        producer.beginTransaction();
        for (int i = 0; i < size; i++) {
            ConsumerRecord<byte[], byte[]> record = read.remove();
            sent.add(producer.send(new ProducerRecord<>(
                    step.get("target").getAsString(), record.partition(), record.key(), record.value())));
            positions.put(new TopicPartition(record.topic(), record.partition()),
                    new OffsetAndMetadata(record.offset() + 1));
        }
        await(sent, step);
        sendOffsets(producer, consumer, positions, step.get("group").getAsString());
    }

    private static void sendOffsets(KafkaProducer<byte[], byte[]> producer, KafkaConsumer<byte[], byte[]> consumer,
            Map<TopicPartition, OffsetAndMetadata> positions, String group) throws Exception {
        Method metadata = method(KafkaConsumer.class, "groupMetadata");
        Object who = metadata == null ? group : metadata.invoke(consumer);
        Class<?> type = metadata == null ? String.class : metadata.getReturnType();
        try {
            method(KafkaProducer.class, "sendOffsetsToTransaction", Map.class, type).invoke(producer, positions, who);
        } catch (InvocationTargetException failure) {
            throw (Exception) failure.getCause();
        }
    }

    private static void end(KafkaProducer<byte[], byte[]> producer, String ending) {
        switch (ending) {
            case "commit":
                producer.commitTransaction();
                break;
            case "abort":
                producer.abortTransaction();
                break;
            case "kill":
                Runtime.getRuntime().halt(9);
                break;
            default:
                throw new IllegalArgumentException("ending " + ending);
        }
    }
}
