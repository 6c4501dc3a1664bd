package tablecrypt.jvm;

import java.io.DataOutputStream;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.catalyst.InternalRow;

/** One data file that Python writes. It is stored in row groups, so its size grows only now and then. */
class PythonFile extends NewFile {
  private static final int OF_PYTHON = 1;
  private static final byte[] NOTHING = new byte[0];

  private final PythonFiles files;
  private final ArrowRows rows;
  private final String location;
  private final byte[] partition;
  private long size = 0;
  private byte[] entry;

  PythonFile(PythonFiles files, ArrowRows rows, String location, byte[] partition) {
    this.files = files;
    this.rows = rows;
    this.location = location;
    this.partition = partition;
  }

  void open(Configuration conf) throws IOException {
    files.ask(files.request("start_file").put("location", location), location, partition);
  }

  void add(InternalRow row) throws IOException {
    rows.add(row);
    if (rows.isFull()) {
      flush();
    }
  }

  private void flush() throws IOException {
    size = files.ask(files.request("write_rows"), location, rows.take()).json.required("length").asLong();
  }

  long size() {
    return size;
  }

  void close() throws IOException {
    if (!rows.isEmpty()) {
      flush();
    }
    entry = files.ask(files.request("finish_file"), location, NOTHING).bytes;
  }

  void remove() {
    files.remove();
  }

  void describe(DataOutputStream out) throws IOException {
    out.writeByte(OF_PYTHON);
    writeBytes(out, location.getBytes("UTF-8"));
    writeBytes(out, entry);
  }
}
