package org.apache.iceberg.spark;

import java.lang.reflect.Field;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The name that Iceberg's tests configure, and our catalog behind it, on the metastore that the tests start. */
public class SparkCatalog extends tablecrypt.jvm.SqlCatalog {
  private static final List<String> OF_ICEBERG = List.of("type", "default-namespace", "cache-enabled", "encryption.kms-impl");

  @Override
  public void initialize(String name, CaseInsensitiveStringMap given) {
    // TestAggregatePushDown sets it, and no release of Iceberg knows it.
    SparkSession.active().conf().unset("spark.sql.iceberg.aggregate_pushdown");
    Configuration hadoop = SparkSession.active().sparkContext().hadoopConfiguration();
    Map<String, String> options = new HashMap<>(given.asCaseSensitiveMap());
    options.keySet().removeAll(OF_ICEBERG);
    options.put("uri", metastore());
    options.put("warehouse", "file:" + hadoop.get("hive.metastore.warehouse.dir"));
    super.initialize(name, new CaseInsensitiveStringMap(options));
  }

  /** Where the tests' metastore is: some of their sessions do not say. */
  private static String metastore() {
    try {
      Field settings = TestBase.class.getDeclaredField("hiveConf");
      settings.setAccessible(true);
      return ((Configuration) settings.get(null)).get("hive.metastore.uris");
    } catch (ReflectiveOperationException renamed) {
      throw new IllegalStateException(renamed);
    }
  }

  @Override
  public String[] defaultNamespace() {
    return new String[] {"default"};
  }
}
