package tablecrypt.jvm;

import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column of text in a batch, for which Spark's Parquet reader gives entries of a dictionary. It makes an object for each row. Here rows with
 * the same text share one, as far as the dictionary's first entries are concerned: text that repeats often is among them.
 */
class DictionaryText extends ColumnView {
  private static final int ENTRIES = 256;

  private final WritableColumnVector entries;
  private final boolean hasNull;
  private final UTF8String[] texts = new UTF8String[ENTRIES];

  DictionaryText(WritableColumnVector column) {
    super(column);
    entries = column.getDictionaryIds();
    hasNull = column.hasNull();
  }

  /** The column, or such a view of it where it is one of text in a dictionary. */
  static ColumnVector of(ColumnVector column) {
    if (column.dataType() instanceof StringType && column instanceof WritableColumnVector) {
      WritableColumnVector text = (WritableColumnVector) column;
      return text.hasDictionary() ? new DictionaryText(text) : text;
    }
    return column;
  }

  int at(int row) {
    return row;
  }

  public boolean isNullAt(int row) {
    return hasNull && column.isNullAt(row);
  }

  public UTF8String getUTF8String(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int entry = entries.getDictId(row);
    if (entry >= ENTRIES) {
      return column.getUTF8String(row);
    }
    if (texts[entry] == null) {
      texts[entry] = column.getUTF8String(row);
    }
    return texts[entry];
  }
}
