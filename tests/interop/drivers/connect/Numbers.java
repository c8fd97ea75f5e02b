import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;
import org.apache.kafka.connect.data.Schema;

/** A source that knows how far it is by the offset that Connect keeps: 0, 1, 2, ... into `topic`, up to `count`. */
public final class Numbers extends SourceConnector {
    private static final Map<String, String> SOURCE = Collections.singletonMap("source", "numbers");
    private Map<String, String> settings;

    @Override
    public String version() {
        return "1";
    }

    @Override
    public void start(Map<String, String> given) {
        settings = given;
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Counter.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int most) {
        return Collections.singletonList(settings);
    }

    @Override
    public void stop() {
    }

    @Override
    public ConfigDef config() {
        return new ConfigDef()
                .define("topic", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "where to")
                .define("count", ConfigDef.Type.LONG, ConfigDef.Importance.HIGH, "how many");
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> given) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    /** Its one task: each poll is a transaction of ten numbers. */
    public static final class Counter extends SourceTask {
        private String topic;
        private long next;
        private long count;

        @Override
        public String version() {
            return "1";
        }

        @Override
        public void start(Map<String, String> given) {
            topic = given.get("topic");
            count = Long.parseLong(given.get("count"));
            Map<String, Object> offset = context.offsetStorageReader().offset(SOURCE);
            next = offset == null ? 0 : (Long) offset.get("next");
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(20);
            if (next >= count) {
                return null;
            }
            List<SourceRecord> records = new java.util.ArrayList<>();
            for (int i = 0; i < 10 && next < count; i++) {
                String value = Long.toString(next++);
                records.add(new SourceRecord(SOURCE, Collections.singletonMap("next", next), topic, 0,
                        Schema.STRING_SCHEMA, value));
            }
            return records;
        }

        @Override
        public void stop() {
        }
    }
}
