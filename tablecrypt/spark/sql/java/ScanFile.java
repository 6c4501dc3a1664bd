package tablecrypt.jvm;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.PartitionedFile;

/** A file, or a part of one, that a task reads, with what is the same for all of its rows. No secret is in it. */
class ScanFile implements Serializable {
  /** The file's number in its plan. */
  int number;
  /** As the table's metadata writes it, which Hadoop's paths do not. */
  String location;
  PartitionedFile part;
  boolean hasDeletes;
  /** Why Python reads the file; null where Spark's own reader does. */
  String portable;
  /** -1 where the file has none. */
  long firstRowId;
  long sequence;
  int spec;
  /** The values of `_partition`; null where nobody asks for them. */
  InternalRow partition;
}
