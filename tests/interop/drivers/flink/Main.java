import java.time.Duration;
import java.util.Map;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/**
 * A Flink job on a cluster within this process: the numbers from 1 on, into one topic for each sink, exactly once.
 *
 * Arguments: how many numbers, a directory for checkpoints, a checkpoint to go on from or `-`, how it fails, the number of
 * checkpoints before it does, then `NAME=BOOTSTRAP` for each sink: its topic, and the beginning of its transactional ids.
 * `halt` ends the process and `throw` fails the job, once, when a checkpoint is complete and nothing of it is committed.
 */
public final class Main {
    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        StreamExecutionEnvironment job = StreamExecutionEnvironment.getExecutionEnvironment(settings(arguments));
        job.setParallelism(1);
        DataStream<Long> numbers = job.fromSequence(1, Long.parseLong(arguments[0]));
        // A chain reports a complete checkpoint from its last operator to its first; the first branch is the last one there.
        numbers.map(new Failing(arguments[3], Integer.parseInt(arguments[4])))
                .sinkTo(new DiscardingSink<>());
        DataStream<String> texts = numbers.map(number -> Long.toString(number)).returns(String.class);
        for (int i = 5; i < arguments.length; i++) {
            String[] place = arguments[i].split("=");
            texts.sinkTo(sink(place[1], place[0])).name(place[0]).uid(place[0]);
        }
        job.execute();
        System.out.println("DONE");
    }

    private static Configuration settings(String[] arguments) {
        Configuration settings = Configuration.fromMap(Map.of(
                "execution.checkpointing.interval", "250 ms",
                "execution.checkpointing.dir", "file://" + arguments[1],
                "execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION",
                "execution.checkpointing.num-retained", "3",
                "restart-strategy.type", "fixed-delay",
                "restart-strategy.fixed-delay.attempts", "3",
                "restart-strategy.fixed-delay.delay", "100 ms",
                "jobmanager.bind-host", "127.0.0.1",
                "taskmanager.bind-host", "127.0.0.1",
                "rest.bind-address", "127.0.0.1"));
        if (!arguments[2].equals("-")) {
            settings.setString("execution.state-recovery.path", "file://" + arguments[2]);
        }
        return settings;
    }

    private static KafkaSink<String> sink(String bootstrap, String name) {
        return KafkaSink.<String>builder()
                .setBootstrapServers(bootstrap)
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(name)
                .setProperty("transaction.timeout.ms", "60000")
                .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                        .setTopic(name)
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .build();
    }

    /** Slow enough for some checkpoints. */
    private static final class Failing extends RichMapFunction<Long, Long> implements CheckpointListener {
        private static boolean hasThrown;
        private final String how;
        private int left;

        Failing(String how, int left) {
            this.how = how;
            this.left = left;
        }

        @Override
        public Long map(Long number) throws InterruptedException {
            Thread.sleep(Duration.ofMillis(2).toMillis());
            return number;
        }

        @Override
        public void notifyCheckpointComplete(long checkpoint) {
            left--;
            if (left == 0 && how.equals("halt")) {
                Runtime.getRuntime().halt(9);
            }
            if (left == 0 && how.equals("throw") && !hasThrown) {
                hasThrown = true;
                throw new IllegalStateException("as asked");
            }
        }
    }
}
