import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.api.FetchRequestBuilder;
import kafka.common.ErrorMapping;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.javaapi.ConsumerMetadataResponse;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetCommitResponse;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetFetchResponse;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.PartitionMetadata;
import kafka.javaapi.TopicMetadata;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.javaapi.producer.Producer;
import kafka.message.MessageAndOffset;
import kafka.network.BlockingChannel;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;

/**
 * The Scala clients of 0.8.2: SimpleConsumer with offsets kept by OffsetCommit and OffsetFetch v0 or v1
 * (option "offsets"), and the old synchronous producer where the option "producer_kind" says "scala".
 */
public final class SimpleSteps extends ProducerSteps {
    private final short version;
    private final String host;
    private final int port;

    public SimpleSteps(JsonObject job) {
        super(job);
        version = job.getAsJsonObject("options").get("offsets").getAsShort();
        String[] address = job.get("bootstrap").getAsString().split(":");
        host = address[0];
        port = Integer.parseInt(address[1]);
    }

    @Override
    public JsonObject run(JsonObject step) throws Exception {
        if (step.get("op").getAsString().equals("consume")) {
            return consume(step);
        }
        JsonObject options = job.getAsJsonObject("options");
        boolean scala = options.has("producer_kind") && options.get("producer_kind").getAsString().equals("scala");
        return scala ? produce(step) : super.run(step);
    }

    private JsonObject produce(JsonObject step) {
        Properties properties = new Properties();
        properties.put("metadata.broker.list", job.get("bootstrap").getAsString());
        properties.put("request.required.acks", "1");
        properties.put("compression.codec", step.get("codec").getAsString());
        properties.put("partitioner.class", "PinnedPartitioner");
        properties.put("message.send.max.retries", step.has("chunk") ? "20" : "3");
        Producer<byte[], byte[]> producer = new Producer<>(new ProducerConfig(properties));
        List<KeyedMessage<byte[], byte[]>> batch = new ArrayList<>();
        for (JsonElement element : step.getAsJsonArray("records")) {
            JsonObject record = element.getAsJsonObject();
            batch.add(new KeyedMessage<>(step.get("topic").getAsString(), Driver.bytes(record.get("k")),
                    record.get("p").getAsString(), Driver.bytes(record.get("v"))));
        }
        int chunk = step.has("chunk") ? step.get("chunk").getAsInt() : batch.size();
        try {
            for (int begin = 0; begin < batch.size(); begin += chunk) {
                producer.send(batch.subList(begin, Math.min(begin + chunk, batch.size())));
            }
        } finally {
            producer.close();
        }
        return new JsonObject();
    }

    private JsonObject consume(JsonObject step) throws Exception {
        String topic = step.get("topic").getAsString();
        String group = step.get("group").getAsString();
        int count = step.get("count").getAsInt();
        Map<Integer, SimpleConsumer> leaders = leaders(topic);
        JsonArray records = new JsonArray();
        Map<TopicAndPartition, OffsetAndMetadata> positions = new HashMap<>();
        for (Map.Entry<Integer, SimpleConsumer> leader : leaders.entrySet()) {
            int partition = leader.getKey();
            TopicAndPartition where = new TopicAndPartition(topic, partition);
            long committed = committed(leaders, group, where);
            long latest = latest(leader.getValue(), where);
            long offset = committed;
            // The end of the log may be a transaction's marker, which no fetch of this age shows: so give up some time.
            for (int empty = 0; offset < latest && records.size() < count && empty < 3; ) {
                long next = fetch(leader.getValue(), where, offset, count, records);
                empty = next == offset ? empty + 1 : 0;
                offset = next;
            }
            positions.put(where, new OffsetAndMetadata(offset, "simple", System.currentTimeMillis()));
        }
        commit(leaders, group, positions);
        for (SimpleConsumer consumer : leaders.values()) {
            consumer.close();
        }
        JsonObject result = new JsonObject();
        result.add("records", records);
        result.addProperty("timed_out", records.size() < count);
        return result;
    }

    private Map<Integer, SimpleConsumer> leaders(String topic) {
        SimpleConsumer seed = new SimpleConsumer(host, port, 10000, 65536, "simple");
        Map<Integer, SimpleConsumer> leaders = new java.util.TreeMap<>();
        for (TopicMetadata metadata : seed.send(new TopicMetadataRequest(Collections.singletonList(topic))).topicsMetadata()) {
            for (PartitionMetadata partition : metadata.partitionsMetadata()) {
                leaders.put(partition.partitionId(), new SimpleConsumer(
                        partition.leader().host(), partition.leader().port(), 10000, 65536, "simple"));
            }
        }
        seed.close();
        return leaders;
    }

    private static long latest(SimpleConsumer consumer, TopicAndPartition where) {
        Map<TopicAndPartition, kafka.api.PartitionOffsetRequestInfo> wanted = new HashMap<>();
        wanted.put(where, new kafka.api.PartitionOffsetRequestInfo(kafka.api.OffsetRequest.LatestTime(), 1));
        return consumer.getOffsetsBefore(new OffsetRequest(wanted, kafka.api.OffsetRequest.CurrentVersion(), "simple"))
                .offsets(where.topic(), where.partition())[0];
    }

    private static long fetch(SimpleConsumer consumer, TopicAndPartition where, long offset, int count, JsonArray records) {
        FetchResponse response = consumer.fetch(new FetchRequestBuilder().clientId("simple").maxWait(500).minBytes(1)
                .addFetch(where.topic(), where.partition(), offset, 100000).build());
        if (response.hasError()) {
            throw new IllegalStateException("fetch error " + response.errorCode(where.topic(), where.partition()));
        }
        for (MessageAndOffset message : response.messageSet(where.topic(), where.partition())) {
            if (message.offset() < offset) {
                continue;
            }
            if (records.size() >= count) {
                break;
            }
            records.add(Driver.record(where.partition(), message.offset(), copy(message.message().key()),
                    copy(message.message().payload()), null, new JsonArray()));
            offset = message.nextOffset();
        }
        return offset;
    }

    private static byte[] copy(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] data = new byte[buffer.remaining()];
        buffer.duplicate().get(data);
        return data;
    }

    /** Version 0 went to any broker (it wrote to ZooKeeper), version 1 to the group's coordinator. */
    private BlockingChannel coordinator(Map<Integer, SimpleConsumer> leaders, String group) throws Exception {
        SimpleConsumer any = leaders.values().iterator().next();
        String address = any.host();
        int where = any.port();
        for (int attempt = 0; version > 0 && attempt < 40; attempt++) {
            BlockingChannel ask = connect(host, port);
            ask.send(new kafka.api.ConsumerMetadataRequest(group, (short) 0, 1, "simple"));
            ConsumerMetadataResponse found = ConsumerMetadataResponse.readFrom(ask.receive().buffer());
            ask.disconnect();
            if (found.errorCode() == ErrorMapping.NoError()) {
                address = found.coordinator().host();
                where = found.coordinator().port();
                break;
            }
            Thread.sleep(250);
        }
        return connect(address, where);
    }

    private static BlockingChannel connect(String host, int port) {
        BlockingChannel channel = new BlockingChannel(host, port, 65536, 65536, 10000);
        channel.connect();
        return channel;
    }

    private long committed(Map<Integer, SimpleConsumer> leaders, String group, TopicAndPartition where) throws Exception {
        BlockingChannel channel = coordinator(leaders, group);
        try {
            for (int attempt = 0; ; attempt++) {
                channel.send(new OffsetFetchRequest(group, Collections.singletonList(where), version, 2, "simple").underlying());
                OffsetMetadataAndError found = OffsetFetchResponse.readFrom(channel.receive().buffer()).offsets().get(where);
                if (found.error() == ErrorMapping.NoError() || found.error() == ErrorMapping.UnknownTopicOrPartitionCode()) {
                    return found.offset() < 0 ? 0 : found.offset();
                }
                if (attempt == 40) {
                    throw new IllegalStateException("OffsetFetch error " + found.error());
                }
                Thread.sleep(250);
            }
        } finally {
            channel.disconnect();
        }
    }

    private void commit(Map<Integer, SimpleConsumer> leaders, String group,
            Map<TopicAndPartition, OffsetAndMetadata> positions) throws Exception {
        BlockingChannel channel = coordinator(leaders, group);
        try {
            channel.send(new OffsetCommitRequest(group, positions, 3, "simple", version).underlying());
            OffsetCommitResponse response = OffsetCommitResponse.readFrom(channel.receive().buffer());
            if (response.hasError()) {
                throw new IllegalStateException("OffsetCommit errors " + response.errors());
            }
        } finally {
            channel.disconnect();
        }
    }
}
