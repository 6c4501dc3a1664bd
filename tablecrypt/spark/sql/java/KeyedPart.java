package tablecrypt.jvm;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.HasPartitionKey;

/** Files of one partition, or of partitions that are alike in the values by which Spark joins. */
class KeyedPart extends ScanPart implements HasPartitionKey {
  private final InternalRow key;

  KeyedPart(ScanFile[] files, InternalRow key) {
    super(files);
    this.key = key;
  }

  public InternalRow partitionKey() {
    return key;
  }
}
