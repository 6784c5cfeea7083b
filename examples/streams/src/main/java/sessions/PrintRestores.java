package sessions;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.StateRestoreListener;

/** Prints how much of each store is read from its changelog. */
final class PrintRestores implements StateRestoreListener {
    @Override
    public void onRestoreStart(TopicPartition partition, String store, long from, long to) {}

    @Override
    public void onBatchRestored(TopicPartition partition, String store, long to, long records) {}

    @Override
    public void onRestoreEnd(TopicPartition partition, String store, long records) {
        if (records > 0) {
            System.out.println("restored " + records + " records of " + partition);
        }
    }
}
