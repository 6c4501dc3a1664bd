package tablecrypt.jvm;

import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Field ids for a schema that Spark pruned: its rules forget them on columns of which only a part is read, and names alone mislead. */
public class FieldIds {
  static StructType restored(StructType pruned, StructType whole) {
    StructField[] fields = new StructField[pruned.length()];
    for (int index = 0; index < fields.length; index++) {
      StructField field = pruned.fields()[index];
      // Whoever asks for Spark's _metadata gets columns that are not in the schema.
      scala.Option at = whole.getFieldIndex(field.name());
      fields[index] = at.isEmpty() ? field : restored(field, whole.fields()[((Integer) at.get()).intValue()]);
    }
    return new StructType(fields);
  }

  private static StructField restored(StructField pruned, StructField whole) {
    return new StructField(pruned.name(), restored(pruned.dataType(), whole.dataType()), pruned.nullable(), whole.metadata());
  }

  private static DataType restored(DataType pruned, DataType whole) {
    if (pruned instanceof StructType) {
      return restored((StructType) pruned, (StructType) whole);
    }
    if (pruned instanceof ArrayType) {
      ArrayType array = (ArrayType) pruned;
      return new ArrayType(restored(array.elementType(), ((ArrayType) whole).elementType()), array.containsNull());
    }
    if (pruned instanceof MapType) {
      MapType map = (MapType) pruned;
      DataType key = restored(map.keyType(), ((MapType) whole).keyType());
      return new MapType(key, restored(map.valueType(), ((MapType) whole).valueType()), map.valueContainsNull());
    }
    return pruned;
  }
}
