package tablecrypt.jvm;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.ArraySeq$;

/** Rows that end with their partition values, taken apart: what is stored, and in which table partition. */
public class PartitionedRows {
  private final StructType partitionSchema;
  private final boolean isPartitioned;
  private final UnsafeProjection storedColumns;
  private final UnsafeProjection partitionColumns;
  private UnsafeRow current;

  PartitionedRows(StructType storedSchema, StructType partitionSchema) {
    this.partitionSchema = partitionSchema;
    isPartitioned = partitionSchema.length() > 0;
    storedColumns = isPartitioned ? columns(storedSchema, 0) : null;
    partitionColumns = isPartitioned ? columns(partitionSchema, storedSchema.length()) : null;
  }

  private static UnsafeProjection columns(StructType schema, int first) {
    Expression[] references = new Expression[schema.length()];
    for (int index = 0; index < references.length; index++) {
      references[index] = new BoundReference(first + index, schema.fields()[index].dataType(), true);
    }
    return UnsafeProjection.create(ArraySeq$.MODULE$.unsafeWrapArray(references));
  }

  /** Whether the row is of another partition than the one before. */
  boolean moveTo(InternalRow row) {
    if (!isPartitioned) {
      return false;
    }
    UnsafeRow next = partitionColumns.apply(row);
    if (next.equals(current)) {
      return false;
    }
    current = next.copy();
    return true;
  }

  InternalRow stored(InternalRow row) {
    return isPartitioned ? storedColumns.apply(row) : row;
  }

  /** The values of the partition moved to: for each a byte, 0 for null; else the length in 4 bytes and Iceberg's single-value form. */
  byte[] partition() throws IOException {
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(content);
    for (int ordinal = 0; ordinal < partitionSchema.length(); ordinal++) {
      out.writeBoolean(!current.isNullAt(ordinal));
      if (!current.isNullAt(ordinal)) {
        byte[] value = value(ordinal, partitionSchema.fields()[ordinal].dataType());
        out.writeInt(value.length);
        out.write(value);
      }
    }
    return content.toByteArray();
  }

  private byte[] value(int ordinal, DataType type) {
    if (type.equals(DataTypes.StringType)) {
      return current.getUTF8String(ordinal).getBytes();
    }
    if (type.equals(DataTypes.BinaryType)) {
      return current.getBinary(ordinal);
    }
    if (type.equals(DataTypes.BooleanType)) {
      return new byte[] {(byte) (current.getBoolean(ordinal) ? 1 : 0)};
    }
    if (type instanceof DecimalType) {
      DecimalType decimal = (DecimalType) type;
      return current.getDecimal(ordinal, decimal.precision(), decimal.scale()).toJavaBigDecimal().unscaledValue().toByteArray();
    }
    if (type.equals(DataTypes.IntegerType) || type.equals(DataTypes.DateType)) {
      return ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(current.getInt(ordinal)).array();
    }
    return ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(current.getLong(ordinal)).array();
  }
}
