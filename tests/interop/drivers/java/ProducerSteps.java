import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/** KafkaProducer of 0.8.2 and later; one transaction for each step where the settings have a transactional.id. */
public class ProducerSteps implements Driver.Steps {
    protected final JsonObject job;

    public ProducerSteps(JsonObject job) {
        this.job = job;
    }

    @Override
    public JsonObject run(JsonObject step) throws Exception {
        if (!step.get("op").getAsString().equals("produce")) {
            throw new IllegalArgumentException("step " + step.get("op"));
        }
        Properties properties = producerProperties(step);
        boolean transactional = properties.containsKey("transactional.id");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties);
        JsonArray acked = new JsonArray();
        JsonObject errors = new JsonObject();
        try {
            if (transactional) {
                method(KafkaProducer.class, "initTransactions").invoke(producer);
                method(KafkaProducer.class, "beginTransaction").invoke(producer);
            }
            List<Callable<RecordMetadata>> sent = new ArrayList<>();
            for (JsonElement element : step.getAsJsonArray("records")) {
                pause(step, sent.size());
                sent.add(send(producer, step, record(step.get("topic").getAsString(), element.getAsJsonObject())));
            }
            for (Callable<RecordMetadata> outcome : sent) {
                try {
                    RecordMetadata metadata = outcome.call();
                    acked.add(Driver.pair(metadata.partition(), metadata.offset()));
                } catch (Exception failure) {
                    if (!step.has("tolerant")) {
                        throw failure;
                    }
                    acked.add(JsonNull.INSTANCE);
                    String text = String.valueOf(failure);
                    errors.addProperty(text, errors.has(text) ? errors.get(text).getAsInt() + 1 : 1);
                }
            }
            if (transactional) {
                method(KafkaProducer.class, "commitTransaction").invoke(producer);
            }
        } finally {
            producer.close();
        }
        JsonObject result = new JsonObject();
        result.add("acked", acked);
        result.add("errors", errors);
        return result;
    }

    private static void pause(JsonObject step, int sent) throws InterruptedException {
        if (step.has("pace") && sent > 0 && sent % step.getAsJsonArray("pace").get(0).getAsInt() == 0) {
            Thread.sleep(step.getAsJsonArray("pace").get(1).getAsLong());
        }
    }

    /** Sends a record. A tolerant step gets the exception of `send` itself later, too, as it gets others. */
    private static Callable<RecordMetadata> send(KafkaProducer<byte[], byte[]> producer, JsonObject step,
            ProducerRecord<byte[], byte[]> record) {
        try {
            Future<RecordMetadata> future = producer.send(record);
            return () -> future.get(step.get("timeout_ms").getAsLong(), TimeUnit.MILLISECONDS);
        } catch (RuntimeException failure) {
            if (!step.has("tolerant")) {
                throw failure;
            }
            return () -> {
                throw failure;
            };
        }
    }

    protected final Properties producerProperties(JsonObject step) {
        Properties properties = Driver.properties(job, "producer");
        properties.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.put("compression.type", step.get("codec").getAsString());
        properties.put("linger.ms", "30");
        return properties;
    }

    static ProducerRecord<byte[], byte[]> record(String topic, JsonObject fields) throws Exception {
        Integer partition = fields.get("p").getAsInt();
        byte[] key = Driver.bytes(fields.get("k"));
        byte[] value = Driver.bytes(fields.get("v"));
        Constructor<?> timed = constructor(String.class, Integer.class, Long.class, Object.class, Object.class);
        if (timed == null || fields.get("ts").isJsonNull()) {
            return new ProducerRecord<>(topic, partition, key, value);
        }
        Object record = timed.newInstance(topic, partition, fields.get("ts").getAsLong(), key, value);
        Method headers = method(ProducerRecord.class, "headers");
        if (headers != null) {
            Object target = headers.invoke(record);
            Method add = Class.forName("org.apache.kafka.common.header.Headers").getMethod("add", String.class, byte[].class);
            for (JsonElement header : fields.getAsJsonArray("h")) {
                JsonArray pair = header.getAsJsonArray();
                add.invoke(target, pair.get(0).getAsString(), Driver.bytes(pair.get(1)));
            }
        }
        @SuppressWarnings("unchecked")
        ProducerRecord<byte[], byte[]> typed = (ProducerRecord<byte[], byte[]>) record;
        return typed;
    }

    static Constructor<?> constructor(Class<?>... types) {
        try {
            return ProducerRecord.class.getConstructor(types);
        } catch (NoSuchMethodException absent) {
            return null;
        }
    }

    static Method method(Class<?> type, String name, Class<?>... parameters) {
        try {
            return type.getMethod(name, parameters);
        } catch (NoSuchMethodException absent) {
            return null;
        }
    }
}
