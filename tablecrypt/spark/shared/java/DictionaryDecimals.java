package tablecrypt.jvm;

import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;

/** Decimals of a dictionary. */
class DictionaryDecimals extends DictionaryColumn {
  private final DecimalType type;
  private final Decimal[] shared = new Decimal[DictionaryViews.ENTRIES];

  DictionaryDecimals(WritableColumnVector stored) {
    super(stored);
    type = (DecimalType) stored.dataType();
  }

  public Decimal getDecimal(int row, int precision, int scale) {
    if (isNullAt(row)) {
      return null;
    }
    int entry = entry(row);
    if (entry >= shared.length || precision != type.precision() || scale != type.scale()) {
      return column.getDecimal(row, precision, scale);
    }
    if (shared[entry] == null) {
      shared[entry] = column.getDecimal(row, precision, scale);
    }
    return shared[entry];
  }
}
