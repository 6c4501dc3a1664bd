package tablecrypt.jvm;

import java.io.Closeable;
import java.io.IOException;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * What Spark's reader gives of one file: batches, in which rows share values of dictionaries; or rows, as they are.
 *
 * Spark wraps what opening a file or `hasNext` raises in an error that PySpark shows with a hundred lines of stack. So `next` raises it.
 */
class ReadBatches extends AbstractIterator implements Closeable {
  private final String location;
  private Iterator stored;
  private Throwable failure;

  ReadBatches(String location, ReadByIds file) {
    this.location = location;
    try {
      stored = (Iterator) file.open();
    } catch (Throwable error) {
      failure = error;
    }
  }

  public boolean hasNext() {
    if (failure != null) {
      return true;
    }
    try {
      return stored.hasNext();
    } catch (Throwable error) {
      failure = error;
      return true;
    }
  }

  public Object next() {
    if (failure != null) {
      throw TaskErrors.reading(location, failure);
    }
    try {
      Object given = stored.next();
      return given instanceof ColumnarBatch ? DictionaryViews.in((ColumnarBatch) given) : given;
    } catch (Throwable error) {
      throw TaskErrors.reading(location, error);
    }
  }

  public void close() throws IOException {
    if (stored instanceof Closeable) {
      ((Closeable) stored).close();
    }
  }
}
