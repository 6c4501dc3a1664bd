package org.apache.iceberg.spark;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The name that Iceberg's tests configure, and our catalog behind it, on the metastore that the tests start. */
public class SparkCatalog extends tablecrypt.jvm.SqlCatalog {
  private static final List<String> OF_ICEBERG = List.of("type", "default-namespace", "cache-enabled");

  @Override
  public void initialize(String name, CaseInsensitiveStringMap given) {
    Configuration hadoop = SparkSession.active().sparkContext().hadoopConfiguration();
    Map<String, String> options = new HashMap<>(given.asCaseSensitiveMap());
    options.keySet().removeAll(OF_ICEBERG);
    options.put("uri", hadoop.get("hive.metastore.uris"));
    options.put("warehouse", "file:" + hadoop.get("hive.metastore.warehouse.dir"));
    super.initialize(name, new CaseInsensitiveStringMap(options));
  }

  @Override
  public String[] defaultNamespace() {
    return new String[] {"default"};
  }
}
