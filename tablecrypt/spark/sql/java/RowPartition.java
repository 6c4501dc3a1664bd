package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** In which table partition a row belongs: its partition values, worked out from its columns. */
class RowPartition implements Serializable {
  private final String[] transforms;
  private final int[] numbers;
  /** Of each field: the ordinals that lead to its source, through structs. */
  private final int[][] paths;
  private final DataType[][] types;
  /** Of each field: whether its source is a uuid, which a row has as text. */
  private final boolean[] ofUuids;
  private transient Object[] current;

  /**
   * @param fields the partition spec's, with "name" and "parameter" of the transform, the path of names to the "column", and whether that
   *     is a "uuid"
   * @param rows the columns of a row
   */
  RowPartition(JsonNode fields, StructType rows) {
    int count = fields.size();
    transforms = new String[count];
    numbers = new int[count];
    paths = new int[count][];
    types = new DataType[count][];
    ofUuids = new boolean[count];
    for (int index = 0; index < count; index++) {
      JsonNode field = fields.required(index);
      transforms[index] = field.required("name").asText();
      numbers[index] = field.required("parameter").asInt();
      ofUuids[index] = field.required("uuid").asBoolean();
      follow(index, field.required("column"), rows);
    }
  }

  private void follow(int index, JsonNode names, StructType rows) {
    paths[index] = new int[names.size()];
    types[index] = new DataType[names.size()];
    StructType inside = rows;
    for (int depth = 0; depth < names.size(); depth++) {
      paths[index][depth] = inside.fieldIndex(names.required(depth).asText());
      types[index][depth] = inside.fields()[paths[index][depth]].dataType();
      inside = types[index][depth] instanceof StructType ? (StructType) types[index][depth] : null;
    }
  }

  /** Whether the row is of another partition than the one before. */
  boolean moveTo(InternalRow row) {
    if (transforms.length == 0) {
      return false;
    }
    Object[] next = new Object[transforms.length];
    for (int index = 0; index < next.length; index++) {
      next[index] = value(row, index);
    }
    if (Arrays.deepEquals(next, current)) {
      return false;
    }
    for (int index = 0; index < next.length; index++) {
      next[index] = next[index] instanceof UTF8String ? ((UTF8String) next[index]).clone() : next[index];
    }
    current = next;
    return true;
  }

  private Object value(InternalRow row, int index) {
    SpecializedGetters inside = row;
    int last = paths[index].length - 1;
    for (int depth = 0; depth < last; depth++) {
      if (inside.isNullAt(paths[index][depth])) {
        return null;
      }
      inside = inside.getStruct(paths[index][depth], ((StructType) types[index][depth]).length());
    }
    if (inside.isNullAt(paths[index][last])) {
      return null;
    }
    Object source = inside.get(paths[index][last], types[index][last]);
    source = ofUuids[index] ? uuid((UTF8String) source) : source;
    return SqlTransform.apply(transforms[index], numbers[index], source, types[index][last]);
  }

  private static byte[] uuid(UTF8String text) {
    byte[] bytes = UuidText.bytes(text);
    if (bytes == null) {
      throw new IllegalArgumentException("not the text of a uuid, 8-4-4-4-12 hexadecimal digits");
    }
    return bytes;
  }

  /** The values of the partition moved to: for each a byte, 0 for null; else the length in 4 bytes and Iceberg's single-value form. */
  byte[] values() throws IOException {
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(content);
    for (int index = 0; index < current.length; index++) {
      out.writeBoolean(current[index] != null);
      if (current[index] != null) {
        byte[] value = singleValue(current[index]);
        out.writeInt(value.length);
        out.write(value);
      }
    }
    return content.toByteArray();
  }

  /** The values of the partition moved to, to ask later whether a row is there again. */
  Object[] here() {
    return current;
  }

  /** Whether the partition moved to has these values. */
  boolean isAt(Object[] values) {
    return Arrays.deepEquals(values, current);
  }

  /** A number of the partition moved to. Another partition may have it too: it brings rows together, and says nothing of where they belong. */
  long number() {
    long number = 0;
    for (int index = 0; index < current.length; index++) {
      number = hashed(current[index], number + index);
    }
    return number;
  }

  private static long hashed(Object value, long seed) {
    if (value instanceof UTF8String) {
      return XXH64.hashUTF8String((UTF8String) value, seed);
    }
    if (value instanceof byte[]) {
      return XXH64.hashUnsafeBytes(value, Platform.BYTE_ARRAY_OFFSET, ((byte[]) value).length, seed);
    }
    if (value instanceof Decimal) {
      return hashed(singleValue(value), seed);
    }
    if (value == null) {
      // Of four bytes, as no value's is.
      return XXH64.hashInt(0, seed);
    }
    return XXH64.hashLong(value instanceof Long ? ((Long) value).longValue() : value.hashCode(), seed);
  }

  /** Forget the partition moved to: the next row is of another one. */
  void leave() {
    current = null;
  }

  private static byte[] singleValue(Object value) {
    if (value instanceof Integer) {
      return ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(((Integer) value).intValue()).array();
    }
    if (value instanceof Long) {
      return ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(((Long) value).longValue()).array();
    }
    if (value instanceof Boolean) {
      return new byte[] {(byte) (((Boolean) value).booleanValue() ? 1 : 0)};
    }
    if (value instanceof UTF8String) {
      return ((UTF8String) value).getBytes();
    }
    if (value instanceof Decimal) {
      return ((Decimal) value).toJavaBigDecimal().unscaledValue().toByteArray();
    }
    return (byte[]) value;
  }
}
