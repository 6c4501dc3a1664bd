package tablecrypt.jvm;

import java.util.Arrays;
import java.util.List;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.ColumnWriteStore;
import org.apache.parquet.column.ColumnWriter;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.schema.MessageType;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Rows without structs, lists and maps: each value goes straight into its column.
 *
 * No value repeats, so the repetition level is 0, and the definition level says whether a value is there: that of the column, or 0 for null.
 */
class FlatRecords implements FileRecords {
  private static final int OTHER = 0;
  private static final int BOOLEAN = 1;
  private static final int BYTE = 2;
  private static final int SHORT = 3;
  private static final int INT = 4;
  private static final int LONG = 5;
  private static final int FLOAT = 6;
  private static final int DOUBLE = 7;
  private static final int TEXT = 8;
  private static final int BYTES = 9;
  private static final int INT_DECIMAL = 10;
  private static final int LONG_DECIMAL = 11;
  private static final int FIXED_DECIMAL = 12;

  private final DataType[] types;
  private final int[] kinds;
  private final int[] levels;
  private final ColumnDescriptor[] descriptors;
  private final ColumnWriter[] writers;
  private ColumnWriteStore columns;

  FlatRecords(StructType rows, MessageType schema) {
    List described = schema.getColumns();
    types = new DataType[described.size()];
    kinds = new int[types.length];
    levels = new int[types.length];
    descriptors = new ColumnDescriptor[types.length];
    writers = new ColumnWriter[types.length];
    for (int index = 0; index < types.length; index++) {
      types[index] = rows.fields()[index].dataType();
      kinds[index] = kindOf(types[index]);
      descriptors[index] = (ColumnDescriptor) described.get(index);
      levels[index] = descriptors[index].getMaxDefinitionLevel();
    }
  }

  /** Whether all columns are of types that go into Parquet's columns as they are. */
  static boolean fits(StructType rows, MessageType schema) {
    for (int index = 0; index < rows.length(); index++) {
      if (!schema.getType(index).isPrimitive() || kindOf(rows.fields()[index].dataType()) == OTHER) {
        return false;
      }
    }
    return true;
  }

  private static int kindOf(DataType type) {
    if (type instanceof BooleanType) {
      return BOOLEAN;
    }
    if (type instanceof ByteType) {
      return BYTE;
    }
    if (type instanceof ShortType) {
      return SHORT;
    }
    if (type instanceof IntegerType || type instanceof DateType) {
      return INT;
    }
    if (type instanceof LongType || type instanceof TimestampType || type instanceof TimestampNTZType) {
      return LONG;
    }
    if (type instanceof FloatType) {
      return FLOAT;
    }
    if (type instanceof DoubleType) {
      return DOUBLE;
    }
    if (type instanceof StringType) {
      return TEXT;
    }
    if (type instanceof BinaryType) {
      return BYTES;
    }
    return type instanceof DecimalType ? kindOf((DecimalType) type) : OTHER;
  }

  private static int kindOf(DecimalType type) {
    if (type.precision() <= Decimal.MAX_INT_DIGITS()) {
      return INT_DECIMAL;
    }
    return type.precision() <= Decimal.MAX_LONG_DIGITS() ? LONG_DECIMAL : FIXED_DECIMAL;
  }

  public void begin(ColumnWriteStore columns) {
    this.columns = columns;
    for (int index = 0; index < writers.length; index++) {
      writers[index] = columns.getColumnWriter(descriptors[index]);
    }
  }

  public void add(InternalRow row) {
    for (int index = 0; index < writers.length; index++) {
      if (row.isNullAt(index)) {
        writers[index].writeNull(0, 0);
      } else {
        write(row, index, writers[index], levels[index]);
      }
    }
    columns.endRecord();
  }

  private void write(InternalRow row, int index, ColumnWriter column, int level) {
    switch (kinds[index]) {
      case BOOLEAN:
        column.write(row.getBoolean(index), 0, level);
        return;
      case BYTE:
        column.write((int) row.getByte(index), 0, level);
        return;
      case SHORT:
        column.write((int) row.getShort(index), 0, level);
        return;
      case INT:
        column.write(row.getInt(index), 0, level);
        return;
      case LONG:
        column.write(row.getLong(index), 0, level);
        return;
      case FLOAT:
        column.write(row.getFloat(index), 0, level);
        return;
      case DOUBLE:
        column.write(row.getDouble(index), 0, level);
        return;
      case TEXT:
        column.write(textOf(row.getUTF8String(index)), 0, level);
        return;
      case BYTES:
        column.write(Binary.fromReusedByteArray(row.getBinary(index)), 0, level);
        return;
      default:
        writeDecimal(row, index, column, level);
    }
  }

  private void writeDecimal(InternalRow row, int index, ColumnWriter column, int level) {
    DecimalType type = (DecimalType) types[index];
    Decimal value = row.getDecimal(index, type.precision(), type.scale());
    if (kinds[index] == INT_DECIMAL) {
      column.write((int) value.toUnscaledLong(), 0, level);
    } else if (kinds[index] == LONG_DECIMAL) {
      column.write(value.toUnscaledLong(), 0, level);
    } else {
      byte[] bytes = value.toJavaBigDecimal().unscaledValue().toByteArray();
      column.write(Binary.fromConstantByteArray(extended(bytes, Decimal.minBytesForPrecision()[type.precision()])), 0, level);
    }
  }

  /** A number in two's complement, most significant byte first, in as many bytes as the column's numbers have. */
  private static byte[] extended(byte[] number, int length) {
    if (number.length == length) {
      return number;
    }
    byte[] padded = new byte[length];
    Arrays.fill(padded, 0, length - number.length, (byte) (number[0] < 0 ? -1 : 0));
    System.arraycopy(number, 0, padded, length - number.length, number.length);
    return padded;
  }

  /** Text where it lies in the row: Parquet copies what it keeps. */
  private static Binary textOf(UTF8String text) {
    if (!(text.getBaseObject() instanceof byte[])) {
      return Binary.fromReusedByteArray(text.getBytes());
    }
    int start = (int) (text.getBaseOffset() - Platform.BYTE_ARRAY_OFFSET);
    return Binary.fromReusedByteArray((byte[]) text.getBaseObject(), start, text.numBytes());
  }

  public void end() {
    // Nothing is kept outside of the columns.
  }
}
