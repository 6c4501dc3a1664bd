package tablecrypt.jvm;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.Closeable;
import java.io.IOException;
import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * The rows of a file that Python reads: batches in the columns of ScanColumns.read. A batch is good until the next one is asked for. The
 * operations are documented in tablecrypt/spark/sql/scans/python_reads.py.
 */
class PythonRows implements Iterator, Closeable {
  private final ScanFile file;
  private final Planner python;
  private final BufferAllocator memory;
  private final String reader;
  private ArrowStreamReader stream;
  private ColumnarBatch next;
  private boolean isOver = false;

  PythonRows(SqlReaderFactory factory, ScanFile file) throws IOException {
    this.file = file;
    this.python = factory.python.process();
    ScanColumns layout = factory.layout;
    ObjectNode request = Planner.request("start_reading");
    request.put("row_ids", layout.rowId >= 0).put("last_updated", layout.lastUpdated >= 0).put("positions", layout.position >= 0);
    byte[] task = DriverClient.portable(factory.endpoint, factory.read, file.number);
    this.reader = ask(request, task).json.required("reader").asText();
    this.memory = ArrowUtils.rootAllocator().newChildAllocator("tablecrypt", 0, Long.MAX_VALUE);
  }

  public boolean hasNext() {
    if (next == null && !isOver) {
      next = read();
    }
    return next != null;
  }

  public Object next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    ColumnarBatch batch = next;
    next = null;
    return batch;
  }

  private ColumnarBatch read() {
    try {
      closeStream();
      PlannerResponse response = ask(Planner.request("next_rows").put("reader", reader), new byte[0]);
      isOver = response.json.required("end").asBoolean();
      return isOver ? null : batch(response.bytes);
    } catch (IOException error) {
      throw new IllegalStateException(message(error), error);
    }
  }

  private ColumnarBatch batch(byte[] content) throws IOException {
    stream = new ArrowStreamReader(new ByteArrayInputStream(content), memory);
    stream.loadNextBatch();
    VectorSchemaRoot root = stream.getVectorSchemaRoot();
    ColumnVector[] columns = new ColumnVector[root.getFieldVectors().size()];
    for (int index = 0; index < columns.length; index++) {
      columns[index] = new ArrowColumnVector((FieldVector) root.getFieldVectors().get(index));
    }
    return new ColumnarBatch(columns, root.getRowCount());
  }

  private PlannerResponse ask(ObjectNode request, byte[] content) throws IOException {
    try {
      return python.ask(request, content);
    } catch (RuntimeException error) {
      throw new IOException(message(error), error);
    }
  }

  private String message(Throwable error) {
    return file.location + " is read by Python, because " + file.portable + ": " + error.getMessage();
  }

  private void closeStream() throws IOException {
    if (stream != null) {
      stream.close();
    }
    stream = null;
  }

  public void close() throws IOException {
    closeStream();
    memory.close();
    try {
      python.ask(Planner.request("stop_reading").put("reader", reader));
    } catch (RuntimeException error) {
      // The process has ended, and its reader with it.
      return;
    }
  }
}
