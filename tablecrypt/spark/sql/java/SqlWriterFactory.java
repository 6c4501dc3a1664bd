package tablecrypt.jvm;

import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;

/** Makes the writer of each attempt at each task. */
class SqlWriterFactory implements DeltaWriterFactory, StreamingDataWriterFactory {
  private final WriteJob job;
  private final RowPartition partition;
  private final boolean keepsLineage;
  private final PythonCommand python;

  /** @param python starts the Python that writes the files; null where Spark's own writer does */
  SqlWriterFactory(WriteJob job, RowPartition partition, boolean keepsLineage, PythonCommand python) {
    this.job = job;
    this.partition = partition;
    this.keepsLineage = keepsLineage;
    this.python = python;
  }

  public DeltaWriter createWriter(int task, long attempt) {
    return new SqlWriter(job, partition, keepsLineage, python, task, attempt);
  }

  public DataWriter createWriter(int task, long attempt, long batch) {
    return createWriter(task, attempt);
  }
}
