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
  private final RowAlignment alignment;
  private final PythonCommand python;
  private final boolean groups;

  /**
   * @param alignment what brings rows to the table's columns; null where they have these
   * @param python starts the Python that writes the files; null where Parquet's Java writer does
   * @param groups whether rows of several partitions come to a task in any order
   */
  SqlWriterFactory(
      WriteJob job, RowPartition partition, boolean keepsLineage, RowAlignment alignment, PythonCommand python, boolean groups) {
    this.job = job;
    this.partition = partition;
    this.keepsLineage = keepsLineage;
    this.alignment = alignment;
    this.python = python;
    this.groups = groups;
  }

  public DeltaWriter createWriter(int task, long attempt) {
    return new SqlWriter(job, partition, keepsLineage, alignment, python, groups, task, attempt);
  }

  public DataWriter createWriter(int task, long attempt, long batch) {
    return createWriter(task, attempt);
  }
}
