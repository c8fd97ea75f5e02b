import kafka.producer.Partitioner;
import kafka.utils.VerifiableProperties;

/** Takes the partition from the partition key: the old producer has no other way to name one. */
public final class PinnedPartitioner implements Partitioner {
    public PinnedPartitioner(VerifiableProperties properties) {
    }

    @Override
    public int partition(Object key, int partitions) {
        return Integer.parseInt((String) key) % partitions;
    }
}
