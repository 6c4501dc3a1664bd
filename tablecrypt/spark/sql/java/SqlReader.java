package tablecrypt.jvm;

import java.io.Closeable;
import java.io.IOException;
import java.util.BitSet;
import java.util.Collections;
import java.util.Iterator;
import org.apache.spark.rdd.InputFileBlockHolder;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.jdk.javaapi.CollectionConverters;

/** The rows of one task, as batches or one by one, in the scan's columns and without deleted ones. */
class SqlReader implements PartitionReader {
  private final SqlReaderFactory factory;
  private final ScanFile[] files;
  private int next = 0;
  /** What the open file's reader gives: batches; or rows, where Spark's own reader gives these. */
  private Iterator stored = Collections.emptyIterator();
  /** Rows of the last batch, where a batch came and rows are wanted. */
  private Iterator rows = Collections.emptyIterator();
  private Closeable opened;
  private FileRows shaped;
  private final ScanMetrics.OfTask metrics = new ScanMetrics.OfTask();
  private Object current;

  SqlReader(SqlReaderFactory factory, ScanPart part) {
    this.factory = factory;
    this.files = part.files;
  }

  public boolean next() {
    current = null;
    long start = System.nanoTime();
    // A task may read several scans by turns.
    CheckedStream.countIn(metrics.decrypted);
    try {
      while (current == null && advance()) {
        continue;
      }
    } catch (Throwable error) {
      throw TaskErrors.reading(files[Math.max(0, next - 1)].location, error);
    } finally {
      CheckedStream.countIn(null);
      metrics.nanos += System.nanoTime() - start;
    }
    return current != null;
  }

  /** One step towards the next row or batch. False where there is none. */
  private boolean advance() throws IOException {
    if (rows.hasNext()) {
      current = rows.next();
    } else if (stored.hasNext()) {
      take(stored.next());
    } else if (next < files.length) {
      open(files[next++]);
    } else {
      close();
      return false;
    }
    return true;
  }

  private void take(Object given) {
    if (given instanceof InternalRow) {
      current = shaped.row((InternalRow) given);
      return;
    }
    ColumnarBatch batch = shaped.batch((ColumnarBatch) given);
    if (factory.batches) {
      current = batch;
    } else if (batch != null) {
      rows = batch.rowIterator();
    }
  }

  private void open(ScanFile file) throws IOException {
    close();
    BitSet deleted = file.hasDeletes ? DriverClient.deletedPositions(factory.endpoint, factory.read, file.number) : null;
    InputFileBlockHolder.set(file.location, file.part.start(), file.part.length());
    shaped = new FileRows(factory.layout, file, deleted);
    metrics.splits++;
    if (file.portable != null) {
      metrics.byPython++;
      PythonRows python = new PythonRows(factory, file);
      opened = python;
      stored = python;
      return;
    }
    scala.collection.Iterator theirs = (scala.collection.Iterator) factory.open.apply(file.part);
    opened = theirs instanceof Closeable ? (Closeable) theirs : null;
    stored = CollectionConverters.asJava(theirs);
  }

  public Object get() {
    return current;
  }

  public CustomTaskMetric[] currentMetricsValues() {
    return metrics.values(shaped == null ? 0 : shaped.dropped());
  }

  public void close() throws IOException {
    InputFileBlockHolder.unset();
    if (opened != null) {
      opened.close();
    }
    opened = null;
    metrics.deletes += shaped == null ? 0 : shaped.dropped();
    shaped = null;
    rows = Collections.emptyIterator();
    stored = Collections.emptyIterator();
  }
}
