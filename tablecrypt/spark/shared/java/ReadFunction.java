package tablecrypt.jvm;

import java.io.Serializable;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import scala.Function1;
import scala.runtime.AbstractFunction1;

/** Spark's function from a file to its rows. On the driver it holds the read's files, so that an RDD without its plan keeps its keys. */
public class ReadFunction extends AbstractFunction1 implements Serializable {
  private final Function1 rows;
  private final transient PlannedFiles held;

  ReadFunction(Function1 rows, PlannedFiles held) {
    this.rows = rows;
    this.held = held;
  }

  public Object apply(Object file) {
    PartitionedFile part = (PartitionedFile) file;
    return new ReadBatches(part.toPath().toString(), new ReadByIds(rows, checked(part)));
  }

  /** The same part of the same file, by the name under which its end is checked when it is opened. */
  private static PartitionedFile checked(PartitionedFile file) {
    return new PartitionedFile(
        file.partitionValues(),
        SparkPath.fromPath(CheckedFileSystem.checked(file.toPath())),
        file.start(),
        file.length(),
        file.locations(),
        file.modificationTime(),
        file.fileSize(),
        file.otherConstantMetadataColumnValues());
  }
}
