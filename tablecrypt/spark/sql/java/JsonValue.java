package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.math.BigDecimal;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** Values that Python sent as JSON, in the form in which Spark holds them. The forms are drawn in tablecrypt/spark/sql/scans/partition_values.py. */
class JsonValue {
  static InternalRow row(JsonNode values, StructType type) {
    Object[] row = new Object[type.length()];
    for (int index = 0; index < row.length; index++) {
      row[index] = of(values.required(index), type.fields()[index].dataType());
    }
    return new GenericInternalRow(row);
  }

  static Object of(JsonNode value, DataType type) {
    if (value.isNull()) {
      return null;
    }
    if (type instanceof BooleanType) {
      return Boolean.valueOf(value.booleanValue());
    }
    if (type instanceof IntegerType || type instanceof DateType) {
      return Integer.valueOf(value.intValue());
    }
    if (type instanceof FloatType) {
      return Float.valueOf((float) number(value));
    }
    if (type instanceof DoubleType) {
      return Double.valueOf(number(value));
    }
    if (type instanceof StringType) {
      return UTF8String.fromString(value.asText());
    }
    if (type instanceof DecimalType) {
      DecimalType decimal = (DecimalType) type;
      return Decimal.apply(new BigDecimal(value.asText()), decimal.precision(), decimal.scale());
    }
    return type instanceof BinaryType ? (Object) bytes(value) : (Object) Long.valueOf(value.longValue());
  }

  private static double number(JsonNode value) {
    return value.isTextual() ? Double.parseDouble(value.asText()) : value.doubleValue();
  }

  private static byte[] bytes(JsonNode value) {
    try {
      return value.binaryValue();
    } catch (IOException error) {
      throw new IllegalArgumentException("no Base64");
    }
  }
}
