import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.lang.reflect.Method;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** KafkaConsumer of 0.9 and later. What only some releases have (Duration, timestamps, headers) is found by reflection. */
public class NewSteps extends ProducerSteps {
    public NewSteps(JsonObject job) {
        super(job);
    }

    @Override
    public JsonObject run(JsonObject step) throws Exception {
        return step.get("op").getAsString().equals("consume") ? consume(step) : super.run(step);
    }

    private JsonObject consume(JsonObject step) throws Exception {
        Properties properties = consumerProperties(step);
        int count = step.get("count").getAsInt();
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(step.get("timeout_ms").getAsLong());
        JsonArray records = new JsonArray();
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties);
        try {
            consumer.subscribe(Collections.singletonList(step.get("topic").getAsString()));
            Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
            while (records.size() < count && System.nanoTime() < deadline) {
                take(poll(consumer), count, records, positions);
            }
            consumer.commitSync(positions);
            long extra = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(step.get("extra_ms").getAsLong());
            while (step.get("extra_ms").getAsLong() > 0 && System.nanoTime() < extra) {
                take(poll(consumer), Integer.MAX_VALUE, records, positions);
            }
        } finally {
            consumer.close();
        }
        JsonObject result = new JsonObject();
        result.add("records", records);
        result.addProperty("timed_out", records.size() < count);
        return result;
    }

    protected final Properties consumerProperties(JsonObject step) {
        Properties properties = Driver.properties(job, "consumer");
        properties.put("group.id", step.get("group").getAsString());
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        return properties;
    }

    private void take(ConsumerRecords<byte[], byte[]> polled, int count, JsonArray records,
            Map<TopicPartition, OffsetAndMetadata> positions) throws Exception {
        for (ConsumerRecord<byte[], byte[]> record : polled) {
            if (records.size() >= count) {
                return;
            }
            records.add(Driver.record(record.partition(), record.offset(), record.key(), record.value(), timestamp(record),
                    headers(record)));
            positions.put(new TopicPartition(record.topic(), record.partition()),
                    new OffsetAndMetadata(record.offset() + 1));
        }
    }

    @SuppressWarnings("unchecked")
    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        Method modern = method(KafkaConsumer.class, "poll", java.time.Duration.class);
        Object polled = modern != null ? modern.invoke(consumer, java.time.Duration.ofMillis(100))
                : method(KafkaConsumer.class, "poll", long.class).invoke(consumer, 100L);
        return (ConsumerRecords<byte[], byte[]>) polled;
    }

    private static Long timestamp(ConsumerRecord<byte[], byte[]> record) throws Exception {
        Method method = method(ConsumerRecord.class, "timestamp");
        return method == null ? null : (Long) method.invoke(record);
    }

    private static JsonArray headers(ConsumerRecord<byte[], byte[]> record) throws Exception {
        JsonArray list = new JsonArray();
        Method method = method(ConsumerRecord.class, "headers");
        if (method != null) {
            Class<?> header = Class.forName("org.apache.kafka.common.header.Header");
            for (Object item : (Iterable<?>) method.invoke(record)) {
                JsonArray pair = new JsonArray();
                pair.add((String) header.getMethod("key").invoke(item));
                pair.add(Driver.text((byte[]) header.getMethod("value").invoke(item)));
                list.add(pair);
            }
        }
        return list;
    }
}
