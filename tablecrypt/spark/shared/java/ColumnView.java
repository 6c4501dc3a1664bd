package tablecrypt.jvm;

import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A column of a batch, seen in another way. The column stays its reader's own, which uses it again for the next batch. */
abstract class ColumnView extends ColumnVector {
  final ColumnVector column;

  ColumnView(ColumnVector column) {
    super(column.dataType());
    this.column = column;
  }

  /** Which row of the column a row is. */
  abstract int at(int row);

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
    return column.isNullAt(at(row));
  }

  public boolean getBoolean(int row) {
    return column.getBoolean(at(row));
  }

  public byte getByte(int row) {
    return column.getByte(at(row));
  }

  public short getShort(int row) {
    return column.getShort(at(row));
  }

  public int getInt(int row) {
    return column.getInt(at(row));
  }

  public long getLong(int row) {
    return column.getLong(at(row));
  }

  public float getFloat(int row) {
    return column.getFloat(at(row));
  }

  public double getDouble(int row) {
    return column.getDouble(at(row));
  }

  public ColumnarArray getArray(int row) {
    return column.getArray(at(row));
  }

  public ColumnarMap getMap(int row) {
    return column.getMap(at(row));
  }

  public Decimal getDecimal(int row, int precision, int scale) {
    return column.getDecimal(at(row), precision, scale);
  }

  public UTF8String getUTF8String(int row) {
    return column.getUTF8String(at(row));
  }

  public byte[] getBinary(int row) {
    return column.getBinary(at(row));
  }

  public ColumnVector getChild(int ordinal) {
    return column.getChild(ordinal);
  }
}
