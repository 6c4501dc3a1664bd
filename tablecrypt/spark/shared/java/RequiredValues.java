package tablecrypt.jvm;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Looks for a null where the table requires a value, at any depth: Parquet's writer would make a broken file of it. */
public class RequiredValues {
  private final String path;
  private final DataType type;
  private final boolean required;
  /** Of a struct its fields, of an array its element, of a map its key and value. Null where there is nothing to look for. */
  private final RequiredValues[] inner;
  /** Which of them are not null: a row of a thousand columns is looked at in these alone. */
  private final int[] looked;

  private RequiredValues(String path, DataType type, boolean required) {
    this.path = path;
    this.type = type;
    this.required = required;
    if (type instanceof StructType) {
      StructField[] fields = ((StructType) type).fields();
      inner = new RequiredValues[fields.length];
      for (int index = 0; index < fields.length; index++) {
        String name = path.isEmpty() ? fields[index].name() : path + "." + fields[index].name();
        inner[index] = of(name, fields[index].dataType(), !fields[index].nullable());
      }
    } else if (type instanceof ArrayType) {
      ArrayType array = (ArrayType) type;
      inner = new RequiredValues[] {of(path + ".element", array.elementType(), !array.containsNull())};
    } else if (type instanceof MapType) {
      MapType map = (MapType) type;
      RequiredValues value = of(path + ".value", map.valueType(), !map.valueContainsNull());
      inner = new RequiredValues[] {of(path + ".key", map.keyType(), false), value};
    } else {
      inner = new RequiredValues[0];
    }
    looked = present(inner);
  }

  static RequiredValues ofRows(StructType schema) {
    return new RequiredValues("", schema, false);
  }

  private static RequiredValues of(String path, DataType type, boolean required) {
    RequiredValues values = new RequiredValues(path, type, required);
    return required || values.looksInside() ? values : null;
  }

  private static int[] present(RequiredValues[] inner) {
    int[] found = new int[inner.length];
    int count = 0;
    for (int index = 0; index < inner.length; index++) {
      if (inner[index] != null) {
        found[count++] = index;
      }
    }
    return Arrays.copyOf(found, count);
  }

  private boolean looksInside() {
    return looked.length > 0;
  }

  /** Check a row, or the fields of a struct. */
  void check(SpecializedGetters fields) {
    for (int index = 0; index < looked.length; index++) {
      inner[looked[index]].checkOne(fields, looked[index]);
    }
  }

  private void checkOne(SpecializedGetters values, int ordinal) {
    if (values.isNullAt(ordinal)) {
      if (required) {
        throw new IllegalArgumentException("column '" + path + "' is required in the table, but the DataFrame has nulls in it");
      }
    } else if (type instanceof StructType) {
      check(values.getStruct(ordinal, inner.length));
    } else if (type instanceof ArrayType) {
      checkAll(values.getArray(ordinal), inner[0]);
    } else if (type instanceof MapType) {
      MapData map = values.getMap(ordinal);
      checkAll(map.keyArray(), inner[0]);
      checkAll(map.valueArray(), inner[1]);
    }
  }

  private static void checkAll(ArrayData values, RequiredValues each) {
    for (int index = 0; each != null && index < values.numElements(); index++) {
      each.checkOne(values, index);
    }
  }
}
