import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** An application that copies records in transactions, one command after the other (README.md: copiers). */
public final class Main {
    private final JsonObject job;
    private final Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
    private KafkaConsumer<String, String> consumer;
    private KafkaProducer<String, String> producer;

    private Main(JsonObject job) {
        this.job = job;
    }

    public static void main(String[] arguments) throws Exception {
        Main copier = new Main(new JsonParser().parse(arguments[0]).getAsJsonObject());
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            System.out.println("RESULT " + (line.equals("write") ? copier.write() : copier.commit()));
        }
        copier.consumer.close();
        copier.producer.close();
    }

    private String write() throws Exception {
        consumer = new KafkaConsumer<>(consumerSettings(), new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(Collections.singletonList(text("source")));
        open();
        producer.beginTransaction();
        for (int read = 0; read < job.get("count").getAsInt();) {
            for (ConsumerRecord<String, String> record : consumer.poll(100)) {
                producer.send(new ProducerRecord<>(text("target"), text("client_id"), record.value())).get();
                positions.put(new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
                read++;
            }
        }
        return "written";
    }

    private String commit() {
        try {
            producer.sendOffsetsToTransaction(positions, text("group"));
            producer.commitTransaction();
            return "committed";
        } catch (RuntimeException failure) {
            giveUp();
            return "refused: " + failure;
        }
    }

    private void giveUp() {
        try {
            producer.abortTransaction();
        } catch (RuntimeException failure) {
            // The producer takes the error for its end: the next one of this id aborts what it has left open.
            producer.close();
            open();
        }
    }

    private void open() {
        Properties settings = common();
        settings.put("transactional.id", text("id"));
        producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
    }

    private Properties consumerSettings() {
        Properties settings = common();
        settings.put("group.id", text("group"));
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", text("session_ms"));
        settings.put("heartbeat.interval.ms", "500");
        settings.put("max.poll.interval.ms", text("max_poll_ms"));
        return settings;
    }

    private Properties common() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", text("bootstrap"));
        settings.put("client.id", text("client_id"));
        return settings;
    }

    private String text(String name) {
        return job.get(name).getAsString();
    }
}
