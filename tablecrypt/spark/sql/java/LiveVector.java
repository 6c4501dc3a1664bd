package tablecrypt.jvm;

import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** Some rows of a column: row i is row `rows[i]` of it. The column stays its reader's own, which uses it again for the next batch. */
class LiveVector extends ColumnVector {
  private final ColumnVector column;
  private final int[] rows;

  LiveVector(ColumnVector column, int[] rows) {
    super(column.dataType());
    this.column = column;
    this.rows = rows;
  }

  public void close() {
    // The reader closes its column.
  }

  public void closeIfFreeable() {
    // Likewise.
  }

  public boolean hasNull() {
    return column.hasNull();
  }

  /** At most this many: some of them may be in rows that are left out. */
  public int numNulls() {
    return column.numNulls();
  }

  public boolean isNullAt(int row) {
    return column.isNullAt(rows[row]);
  }

  public boolean getBoolean(int row) {
    return column.getBoolean(rows[row]);
  }

  public byte getByte(int row) {
    return column.getByte(rows[row]);
  }

  public short getShort(int row) {
    return column.getShort(rows[row]);
  }

  public int getInt(int row) {
    return column.getInt(rows[row]);
  }

  public long getLong(int row) {
    return column.getLong(rows[row]);
  }

  public float getFloat(int row) {
    return column.getFloat(rows[row]);
  }

  public double getDouble(int row) {
    return column.getDouble(rows[row]);
  }

  public ColumnarArray getArray(int row) {
    return column.getArray(rows[row]);
  }

  public ColumnarMap getMap(int row) {
    return column.getMap(rows[row]);
  }

  public Decimal getDecimal(int row, int precision, int scale) {
    return column.getDecimal(rows[row], precision, scale);
  }

  public UTF8String getUTF8String(int row) {
    return column.getUTF8String(rows[row]);
  }

  public byte[] getBinary(int row) {
    return column.getBinary(rows[row]);
  }

  public ColumnVector getChild(int ordinal) {
    return new LiveVector(column.getChild(ordinal), rows);
  }
}
