package tablecrypt.jvm;

import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.unsafe.types.UTF8String;

/** Text of a dictionary. */
class DictionaryText extends DictionaryColumn {
  private final UTF8String[] shared = new UTF8String[DictionaryViews.ENTRIES];

  DictionaryText(WritableColumnVector stored) {
    super(stored);
  }

  public UTF8String getUTF8String(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int entry = entry(row);
    if (entry >= shared.length) {
      return column.getUTF8String(row);
    }
    if (shared[entry] == null) {
      shared[entry] = column.getUTF8String(row);
    }
    return shared[entry];
  }
}
