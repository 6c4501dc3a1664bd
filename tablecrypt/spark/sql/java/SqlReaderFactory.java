package tablecrypt.jvm;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import scala.Function1;

/** Opens a task's files. It goes to executors, and has neither keys nor rows. */
class SqlReaderFactory implements PartitionReaderFactory {
  final Function1 open;
  final boolean batches;
  final String endpoint;
  final String read;
  final ScanColumns layout;
  final PythonCommand python;

  /**
   * @param open Spark's function from a file to its rows
   * @param batches whether these are batches
   * @param endpoint where keys and deletes are asked for
   * @param read the read's name there
   * @param python starts Python where tasks run
   */
  SqlReaderFactory(Function1 open, boolean batches, String endpoint, String read, ScanColumns layout, PythonCommand python) {
    this.open = open;
    this.batches = batches;
    this.endpoint = endpoint;
    this.read = read;
    this.layout = layout;
    this.python = python;
  }

  public boolean supportColumnarReads(InputPartition part) {
    return batches;
  }

  public PartitionReader createColumnarReader(InputPartition part) {
    return new SqlReader(this, (ScanPart) part);
  }

  public PartitionReader createReader(InputPartition part) {
    return new SqlReader(this, (ScanPart) part);
  }
}
