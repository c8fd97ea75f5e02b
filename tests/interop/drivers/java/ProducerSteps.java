import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
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
        try {
            if (transactional) {
                method(KafkaProducer.class, "initTransactions").invoke(producer);
                method(KafkaProducer.class, "beginTransaction").invoke(producer);
            }
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonElement element : step.getAsJsonArray("records")) {
                sent.add(producer.send(record(step.get("topic").getAsString(), element.getAsJsonObject())));
            }
            for (Future<RecordMetadata> future : sent) {
                RecordMetadata metadata = future.get(step.get("timeout_ms").getAsLong(), TimeUnit.MILLISECONDS);
                acked.add(Driver.pair(metadata.partition(), metadata.offset()));
            }
            if (transactional) {
                method(KafkaProducer.class, "commitTransaction").invoke(producer);
            }
        } finally {
            producer.close();
        }
        JsonObject result = new JsonObject();
        result.add("acked", acked);
        return result;
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
