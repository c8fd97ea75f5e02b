import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a share group, or what an operator asks of one. Each line of output is one fact.
 *
 * `read BOOTSTRAP GROUP TOPIC`: prints `got VALUE` for each record, and `acknowledged VALUE` once the broker has said so;
 * `failed CLASS MESSAGE` at an error, and ends then; leaves the group at SIGTERM. `describe BOOTSTRAP GROUP TOPIC`: the group's state, its
 * offset in each partition, and how many records of each it has not acknowledged. `change BOOTSTRAP GROUP TOPIC`: alters that offset, then deletes the topic's offsets.
 */
public final class Main {
    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[1]);
        if (arguments[0].equals("read")) {
            read(settings, arguments[2], arguments[3]);
        } else {
            operate(settings, arguments[0], arguments[2], arguments[3]);
        }
    }

    private static void read(Properties settings, String group, String topic) throws Exception {
        fromTheBeginning(settings, group);
        settings.put("group.id", group);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("max.poll.records", "20");
        StringDeserializer text = new StringDeserializer();
        try (KafkaShareConsumer<String, String> member = new KafkaShareConsumer<>(settings, text, text)) {
            leaveWhenTerminated(member);
            member.subscribe(List.of(topic));
            while (true) {
                ConsumerRecords<String, String> records = member.poll(Duration.ofMillis(500));
                for (ConsumerRecord<String, String> record : records) {
                    say("got " + record.value());
                    member.acknowledge(record);
                }
                Map<TopicIdPartition, Optional<KafkaException>> done = member.commitSync();
                for (ConsumerRecord<String, String> record : records) {
                    if (isDone(done, record)) {
                        say("acknowledged " + record.value());
                    }
                }
            }
        } catch (WakeupException terminated) {
            say("left");
        } catch (KafkaException e) {
            say("failed " + e.getClass().getSimpleName() + " " + e.getMessage());
        }
    }

    private static void leaveWhenTerminated(KafkaShareConsumer<String, String> member) {
        Thread reader = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            member.wakeup();
            try {
                reader.join(10_000);
            } catch (InterruptedException e) {
                reader.interrupt();
            }
        }));
    }

    private static boolean isDone(
            Map<TopicIdPartition, Optional<KafkaException>> done, ConsumerRecord<String, String> record) {
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> each : done.entrySet()) {
            if (each.getKey().partition() == record.partition()) {
                return each.getValue().isEmpty();
            }
        }
        return false;
    }

    private static void fromTheBeginning(Properties settings, String group) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        Collection<AlterConfigOp> changes = List.of(new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET));
        try (Admin admin = Admin.create(settings)) {
            admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        }
    }

    private static void operate(Properties settings, String what, String group, String topic) throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        try (Admin admin = Admin.create(settings)) {
            if (what.equals("describe")) {
                say("state " + admin.describeShareGroups(List.of(group)).all().get().get(group).groupState());
                TreeMap<Integer, Object> offsets = new TreeMap<>();
                TreeMap<Integer, Object> lags = new TreeMap<>();
                offsets(admin, group).forEach((each, found) -> {
                    offsets.put(each.partition(), start(found));
                    lags.put(each.partition(), found.lag().orElse(-1L));
                });
                say("offsets " + offsets);
                say("lags " + lags);
                return;
            }
            admin.alterShareGroupOffsets(group, Map.of(first, 3L)).all().get();
            say("altered " + offset(admin, group, first));
            admin.deleteShareGroupOffsets(group, java.util.Set.of(topic)).all().get();
            say("deleted " + offset(admin, group, first));
        }
    }

    private static Object offset(Admin admin, String group, TopicPartition partition) throws Exception {
        return start(offsets(admin, group).get(partition));
    }

    private static Map<TopicPartition, SharePartitionOffsetInfo> offsets(Admin admin, String group) throws Exception {
        return admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo(group).get();
    }

    private static Object start(SharePartitionOffsetInfo found) {
        return found == null ? "none" : found.startOffset();
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
