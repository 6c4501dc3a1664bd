package tablecrypt.jvm;

import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** How many NaN each floating-point column of a file holds: Parquet's statistics do not tell. Columns inside others are not counted. */
public class NanCounts {
  private final int[] ordinals;
  private final int[] fieldIds;
  private final boolean[] isDouble;
  private final long[] counts;

  NanCounts(StructType schema) {
    ArrayList floating = new ArrayList();
    for (int ordinal = 0; ordinal < schema.length(); ordinal++) {
      DataType type = schema.fields()[ordinal].dataType();
      if (type.equals(DataTypes.DoubleType) || type.equals(DataTypes.FloatType)) {
        floating.add(Integer.valueOf(ordinal));
      }
    }
    ordinals = new int[floating.size()];
    fieldIds = new int[ordinals.length];
    isDouble = new boolean[ordinals.length];
    counts = new long[ordinals.length];
    for (int index = 0; index < ordinals.length; index++) {
      ordinals[index] = ((Integer) floating.get(index)).intValue();
      StructField field = schema.fields()[ordinals[index]];
      fieldIds[index] = (int) field.metadata().getLong("parquet.field.id");
      isDouble[index] = field.dataType().equals(DataTypes.DoubleType);
    }
  }

  void add(InternalRow row) {
    for (int index = 0; index < ordinals.length; index++) {
      int ordinal = ordinals[index];
      if (!row.isNullAt(ordinal) && (isDouble[index] ? Double.isNaN(row.getDouble(ordinal)) : Float.isNaN(row.getFloat(ordinal)))) {
        counts[index]++;
      }
    }
  }

  void describe(DataOutputStream out) throws IOException {
    out.writeInt(counts.length);
    for (int index = 0; index < counts.length; index++) {
      out.writeInt(fieldIds[index]);
      out.writeLong(counts[index]);
    }
  }
}
