package tablecrypt.jvm;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage;
import org.apache.spark.unsafe.types.UTF8String;
import org.roaringbitmap.RoaringBitmap;
import scala.collection.Iterator;

/** One attempt at one task of a write: rows go into files, and the positions of rows that are deleted into bitmaps. */
class SqlWriter implements DeltaWriter {
  private static final InternalRow NEW_ROW = new GenericInternalRow(new Object[] {null, null});

  private final WriteJob job;
  private final RowPartition partition;
  private final boolean keepsLineage;
  private final UnsafeProjection projection;
  private final int task;
  private final long attempt;
  private final TaskFiles files;
  private final Map deleted = new HashMap();
  private final JoinedRow joined = new JoinedRow();
  private final GenericInternalRow lineage = new GenericInternalRow(new Object[2]);
  private final boolean groups;
  private boolean started = false;
  private Object[] first;
  private long number;
  private boolean isLate = false;
  private LateRows late;
  private UTF8String lastFile;
  private RoaringBitmap positions;

  /**
   * @param alignment what brings rows to the table's columns; null where they have these
   * @param python starts the Python that writes the files; null where Parquet's Java writer does
   * @param groups whether rows of several partitions come in any order
   */
  SqlWriter(
      WriteJob job, RowPartition partition, boolean keepsLineage, RowAlignment alignment, PythonCommand python, boolean groups, int task,
      long attempt) {
    this.job = job;
    this.partition = partition;
    this.keepsLineage = keepsLineage;
    projection = alignment == null ? null : alignment.projection();
    this.task = task;
    this.attempt = attempt;
    this.groups = groups;
    files = python == null ? new TaskFiles(job, task, attempt) : new PythonFiles(job, task, attempt, python);
  }

  public void write(Object row) {
    store(projection == null ? (InternalRow) row : projection.apply((InternalRow) row), NEW_ROW);
  }

  public void insert(Object row) {
    store((InternalRow) row, NEW_ROW);
  }

  /** Of a copy-on-write change: a row that only moves, or is updated. */
  public void write(Object metadata, Object row) {
    store((InternalRow) row, lineageOf((InternalRow) metadata));
  }

  /** Of a merge-on-read change: an updated row, whose old version is deleted. */
  public void reinsert(Object metadata, Object row) {
    store((InternalRow) row, lineageOf((InternalRow) metadata));
  }

  public void update(Object metadata, Object id, Object row) {
    throw new UnsupportedOperationException("updates come as deletes and inserts");
  }

  /** @param id the row's file, as the table names it, and its position there */
  public void delete(Object metadata, Object id) {
    InternalRow row = (InternalRow) id;
    UTF8String file = row.getUTF8String(0);
    if (!file.equals(lastFile)) {
      lastFile = file.clone();
      positions = (RoaringBitmap) deleted.get(lastFile);
      if (positions == null) {
        positions = new RoaringBitmap();
        deleted.put(lastFile, positions);
      }
    }
    positions.add(Math.toIntExact(row.getLong(1)));
  }

  private void store(InternalRow row, InternalRow origin) {
    try {
      if (partition.moveTo(row)) {
        startPartition();
      }
      InternalRow stored = keepsLineage ? joined.apply(row, origin) : row;
      if (isLate) {
        late.add(stored, number);
      } else {
        files.write(stored);
      }
    } catch (Throwable error) {
      throw TaskErrors.writing(files.where(), error);
    }
  }

  /** Rows of the first partition are written as they come. With rows of others between them they would be in many files: those come late. */
  private void startPartition() throws IOException {
    if (!started || !groups) {
      first = partition.here();
      started = true;
      files.startPartition(partition.values());
      return;
    }
    number = partition.number();
    // By the values: a row whose partition has only the number of the first would be in the first's file, where no filter looks for it.
    isLate = !partition.isAt(first);
    if (isLate && late == null) {
      late = new LateRows(job.schema());
    }
  }

  private void writeLateRows() throws IOException {
    if (late == null) {
      return;
    }
    partition.leave();
    Iterator rows = late.sorted();
    while (rows.hasNext()) {
      InternalRow stored = (InternalRow) rows.next();
      if (partition.moveTo(stored)) {
        files.startPartition(partition.values());
      }
      files.write(stored);
    }
  }

  /** _row_id and _last_updated_sequence_number, which come first; null where Spark did not keep them. */
  private InternalRow lineageOf(InternalRow metadata) {
    for (int index = 0; index < 2; index++) {
      lineage.update(index, metadata.isNullAt(index) ? null : (Object) Long.valueOf(metadata.getLong(index)));
    }
    return lineage;
  }

  public WriterCommitMessage commit() {
    try {
      writeLateRows();
      files.close();
      byte[] aad = ByteBuffer.allocate(job.id.length + 4).put(job.id).putInt(task).array();
      byte[] result = SealedMessage.encrypt(job.publicKey, job.id, aad, described());
      // Once the write has ended nobody takes the result, and so nobody would know the files: then this fails, and they are removed.
      DriverClient.request(job.coordinator, Requests.finish(task, attempt));
      // A class of Spark's own: results are read with the server's class loader, which does not know the jars of a Connect session.
      return new PythonWriterCommitMessage(result);
    } catch (Throwable error) {
      throw TaskErrors.writing(files.where(), error);
    }
  }

  public void abort() {
    files.remove();
  }

  public void close() {
    files.end();
  }

  /** The layout is drawn in tablecrypt/spark/shared/written_files.py. */
  private byte[] described() throws IOException {
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(content);
    out.writeLong(attempt);
    files.describe(out);
    out.writeInt(deleted.size());
    Object[] names = deleted.keySet().toArray();
    for (int index = 0; index < names.length; index++) {
      RoaringBitmap bitmap = (RoaringBitmap) deleted.get(names[index]);
      byte[] name = ((UTF8String) names[index]).getBytes();
      out.writeInt(name.length);
      out.write(name);
      out.writeInt(bitmap.serializedSizeInBytes());
      bitmap.serialize(out);
    }
    return content.toByteArray();
  }
}
