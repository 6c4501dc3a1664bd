package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.Constructor;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.spark.package$;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTable$;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.V1Table;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A view, as Spark's own persistent views are: in a description that says with which catalog, namespace and settings its SQL is resolved, and
 * which temporary views and functions it may see, which is none. Spark parses the SQL as a query, and ends the nesting of views at a depth.
 */
class SqlView extends V1Table {
  private static final CatalogTable$ KEYS = CatalogTable$.MODULE$;
  private static final int FIRST_DEFAULT = 4;
  private static final int CREATE_VERSION = 10;
  private static final int PROPERTIES = 11;
  private static final int TEXT = 13;

  private final String name;
  private final Map properties;

  private SqlView(String name, CatalogTable table, Map properties) {
    super(table);
    this.name = name;
    this.properties = properties;
  }

  /** A view that Python loaded. */
  static SqlView of(SqlCatalog catalog, Identifier view, JsonNode told) {
    String name = catalog.name() + "." + view;
    String sql = told.required("sql").asText();
    String[] from = (String[]) Planner.JSON.convertValue(told.required("default"), String[].class);
    SparkSession session = (SparkSession) org.apache.spark.sql.SparkSession.active();
    String own = SqlName.whole(catalog.name(), view);
    ViewNesting.enter(own, ViewQuery.checked(session, name, sql).readings(session, own, from));
    HashMap settings = new HashMap();
    settings.put(KEYS.VIEW_SCHEMA_MODE(), told.required("binding").asText());
    JsonNode columns = told.required("query_columns");
    settings.put(KEYS.VIEW_QUERY_OUTPUT_NUM_COLUMNS(), String.valueOf(columns.size()));
    for (int index = 0; index < columns.size(); index++) {
      settings.put(KEYS.VIEW_QUERY_OUTPUT_COLUMN_NAME_PREFIX() + index, columns.required(index).asText());
    }
    StructType schema = (StructType) DataType.fromJson(told.required("schema").asText());
    CatalogTable table = description(catalog.name(), view, sql, schema, from, settings);
    return new SqlView(name, table, (Map) Planner.JSON.convertValue(told.required("properties"), HashMap.class));
  }

  /** What Spark calls a view. */
  static TableIdentifier identifier(String catalog, Identifier view) {
    return new TableIdentifier(view.name(), Option.apply(String.join(".", view.namespace())), Option.apply(catalog));
  }

  private static CatalogTable description(String catalog, Identifier view, String sql, StructType schema, String[] from, HashMap settings) {
    settings.put(KEYS.VIEW_CATALOG_AND_NAMESPACE(), String.valueOf(from.length));
    for (int index = 0; index < from.length; index++) {
      settings.put(KEYS.VIEW_CATALOG_AND_NAMESPACE_PART_PREFIX() + index, from[index]);
    }
    putSettings(settings);
    Constructor made = CatalogTable.class.getConstructors()[0];
    Object[] values = new Object[made.getParameterTypes().length];
    values[0] = identifier(catalog, view);
    values[1] = CatalogTableType.VIEW();
    values[2] = CatalogStorageFormat.empty();
    values[3] = schema;
    try {
      for (int index = FIRST_DEFAULT; index < values.length; index++) {
        // Releases of Spark differ in how many fields follow.
        values[index] = CatalogTable$.class.getMethod("$lessinit$greater$default$" + (index + 1), new Class[0]).invoke(KEYS, new Object[0]);
      }
      values[CREATE_VERSION] = package$.MODULE$.SPARK_VERSION();
      values[PROPERTIES] = scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(settings));
      values[TEXT] = Option.apply(sql);
      return (CatalogTable) made.newInstance(values);
    } catch (Throwable error) {
      throw new IllegalStateException("this version of Spark describes views in a way that tablecrypt does not know", error);
    }
  }

  /** The reader's own settings: Iceberg's views have none. But nothing in the text of a view is a variable of the reader's. */
  private static void putSettings(HashMap settings) {
    Iterator all = CollectionConverters.asJava(SQLConf.get().getAllConfs()).entrySet().iterator();
    while (all.hasNext()) {
      Map.Entry each = (Map.Entry) all.next();
      settings.put(KEYS.VIEW_SQL_CONFIG_PREFIX() + each.getKey(), each.getValue());
    }
    settings.put(KEYS.VIEW_SQL_CONFIG_PREFIX() + LiteralQuery.SETTING, "false");
  }

  public String name() {
    return name;
  }

  public Map properties() {
    return properties;
  }
}
