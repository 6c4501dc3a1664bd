package tablecrypt.jvm;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.List;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.types.StructType;

/** Rows that are collected, to be handed over as an Arrow stream of one batch. Times with a zone are in UTC. */
class ArrowRows {
  private static final int MOST_ROWS = 8192;
  private static final long MOST_BYTES = 4 * 1024 * 1024;
  private static final int ROWS_BETWEEN_SIZE_CHECKS = 64;

  private final ArrowWriter writer;
  private final VectorSchemaRoot root;
  private final long mostBytes;
  private int rows = 0;

  /** @param fileSize what a file is to hold, in bytes: rows for several are not collected */
  ArrowRows(StructType schema, long fileSize) {
    mostBytes = Math.min(MOST_BYTES, fileSize);
    writer = ArrowWriter.create(schema, "UTC", true, false);
    root = writer.root();
  }

  void add(InternalRow row) {
    writer.write(row);
    rows++;
  }

  boolean isEmpty() {
    return rows == 0;
  }

  boolean isFull() {
    return rows >= MOST_ROWS || (rows % ROWS_BETWEEN_SIZE_CHECKS == 0 && bytes() >= mostBytes);
  }

  private long bytes() {
    List vectors = root.getFieldVectors();
    long bytes = 0;
    for (int index = 0; index < vectors.size(); index++) {
      bytes += ((FieldVector) vectors.get(index)).getBufferSizeFor(rows);
    }
    return bytes;
  }

  /** A stream that has the schema and no rows. */
  byte[] schema() throws IOException {
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    ArrowStreamWriter stream = new ArrowStreamWriter(root, null, content);
    stream.start();
    stream.end();
    return content.toByteArray();
  }

  /** A stream of the rows, which are here no more. */
  byte[] take() throws IOException {
    writer.finish();
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    ArrowStreamWriter stream = new ArrowStreamWriter(root, null, content);
    stream.start();
    stream.writeBatch();
    stream.end();
    writer.reset();
    rows = 0;
    return content.toByteArray();
  }

  void close() {
    root.close();
  }
}
