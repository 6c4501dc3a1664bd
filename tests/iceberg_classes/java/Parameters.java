package tablecrypt.judge;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.iceberg.FileFormat;

/** The rows of parameters that a class of tests runs with: our catalog alone, Parquet, and the version of the format that has keys. */
public class Parameters {
  static final String CATALOG = "testhive";
  private static final String IMPLEMENTATION = "org.apache.iceberg.spark.SparkCatalog";
  private static final Map<String, String> CONFIG = Map.of("type", "hive", "default-namespace", "default");

  public static Object[][] ours(Object[][] rows) {
    Map<String, Object[]> different = new LinkedHashMap<>();
    for (Object[] row : rows) {
      Object[] ours = ours(row);
      different.putIfAbsent(Arrays.deepToString(ours), ours);
    }
    return different.values().stream().limit(1).toArray(Object[][]::new);
  }

  private static Object[] ours(Object[] row) {
    Object[] ours = row.clone();
    boolean namesCatalog = row.length > 2 && row[0] instanceof String && row[1] instanceof String && row[2] instanceof Map;
    if (namesCatalog) {
      ours[0] = CATALOG;
      ours[1] = IMPLEMENTATION;
      ours[2] = CONFIG;
    }
    for (int index = namesCatalog ? 3 : 0; index < ours.length; index++) {
      ours[index] = ours(ours[index]);
    }
    return ours;
  }

  private static Object ours(Object value) {
    if (value instanceof FileFormat) {
      return FileFormat.PARQUET;
    }
    if (value instanceof String format && (format.equalsIgnoreCase("orc") || format.equalsIgnoreCase("avro"))) {
      return "parquet";
    }
    return value instanceof Integer version && (version == 1 || version == 2) ? (Object) 3 : value;
  }
}
