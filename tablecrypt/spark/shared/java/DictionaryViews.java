package tablecrypt.jvm;

import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Spark's Parquet reader gives entries of a dictionary for a column of text or decimals, and makes an object of each row's. In views of such
 * columns rows of the same entry share one, as far as the dictionary's first entries are concerned: values that repeat often are among them.
 */
class DictionaryViews {
  static final int ENTRIES = 256;

  /** Whether there are views of columns of a type. */
  static boolean areOf(DataType type) {
    return type instanceof StringType || type instanceof DecimalType;
  }

  /** The batch, or one of the same columns with views of those that are entries of a dictionary. */
  static ColumnarBatch in(ColumnarBatch batch) {
    ColumnVector[] columns = new ColumnVector[batch.numCols()];
    boolean isSame = true;
    for (int index = 0; index < columns.length; index++) {
      columns[index] = viewed(batch.column(index));
      isSame = isSame && columns[index] == batch.column(index);
    }
    return isSame ? batch : new ColumnarBatch(columns, batch.numRows());
  }

  private static ColumnVector viewed(ColumnVector column) {
    if (!areOf(column.dataType()) || !(column instanceof WritableColumnVector) || !((WritableColumnVector) column).hasDictionary()) {
      return column;
    }
    WritableColumnVector stored = (WritableColumnVector) column;
    return stored.dataType() instanceof StringType ? (ColumnVector) new DictionaryText(stored) : new DictionaryDecimals(stored);
  }
}
