package tablecrypt.jvm;

import java.io.Closeable;
import java.io.IOException;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/** What Spark's reader gives of one file: batches, in which rows share values of dictionaries; or rows, as they are. */
class ReadBatches extends AbstractIterator implements Closeable {
  private final Iterator stored;

  ReadBatches(Iterator stored) {
    this.stored = stored;
  }

  public boolean hasNext() {
    return stored.hasNext();
  }

  public Object next() {
    Object given = stored.next();
    return given instanceof ColumnarBatch ? DictionaryViews.in((ColumnarBatch) given) : given;
  }

  public void close() throws IOException {
    if (stored instanceof Closeable) {
      ((Closeable) stored).close();
    }
  }
}
