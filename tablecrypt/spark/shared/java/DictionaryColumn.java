package tablecrypt.jvm;

import org.apache.spark.sql.execution.vectorized.WritableColumnVector;

/** A column in a batch for which Spark's Parquet reader gives entries of a dictionary: rows of the same entry share one object. */
abstract class DictionaryColumn extends ColumnView {
  private final WritableColumnVector entries;
  private final boolean hasNull;

  DictionaryColumn(WritableColumnVector stored) {
    super(stored);
    entries = stored.getDictionaryIds();
    hasNull = stored.hasNull();
  }

  /** Which entry of the dictionary a row that is not null has. */
  int entry(int row) {
    return entries.getDictId(row);
  }

  int at(int row) {
    return row;
  }

  public boolean isNullAt(int row) {
    return hasNull && column.isNullAt(row);
  }
}
