package tablecrypt.jvm;

import java.io.DataOutputStream;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.catalyst.InternalRow;

/** One data file while a task writes it. */
abstract class NewFile {
  private long rows = 0;

  abstract void open(Configuration conf) throws IOException;

  void write(InternalRow row) throws IOException {
    add(row);
    rows++;
  }

  abstract void add(InternalRow row) throws IOException;

  long rows() {
    return rows;
  }

  /** Bytes of it so far. */
  abstract long size();

  /** Close the file, and keep of it only what is told of it: a task may write thousands. */
  abstract void close() throws IOException;

  /** Leave nothing of it behind, whatever state it is in. */
  abstract void remove() throws IOException;

  /** Write what the driver needs to know of the closed file, its DEK included; drawn in tablecrypt/spark/shared/written_files.py. */
  abstract void describe(DataOutputStream out) throws IOException;

  static void writeBytes(DataOutputStream out, byte[] content) throws IOException {
    out.writeInt(content.length);
    out.write(content);
  }
}
