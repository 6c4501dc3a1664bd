package tablecrypt.jvm;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/**
 * format("tablecrypt"): a table of a catalog that the session need not know, by its name and options.
 *
 * Each catalog is opened with what the program gave for it to tablecrypt.spark.register; or with the options spark.sql.catalog.NAME.*, as
 * SqlCatalog is; or with PyIceberg's own configuration.
 */
public class EncryptedSource implements TableProvider, DataSourceRegister {
  private static final String GIVEN = "spark.sql.tablecrypt.given";
  private static final Map CATALOGS = new ConcurrentHashMap();

  private CaseInsensitiveStringMap asked;
  private SourceTable table;

  public String shortName() {
    return "tablecrypt";
  }

  public StructType inferSchema(CaseInsensitiveStringMap options) {
    table = load(options);
    asked = options;
    return table.schema();
  }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(properties);
    // Spark asks for the schema first, and then for the table: both are of one snapshot.
    return options.equals(asked) ? table : load(options);
  }

  private static SourceTable load(CaseInsensitiveStringMap options) {
    String name = options.containsKey("table") ? options.get("table") : options.containsKey("path") ? options.get("path") : "";
    return catalog(name.substring(0, Math.max(0, name.indexOf('.')))).source(options);
  }

  private static SqlCatalog catalog(String name) {
    CaseInsensitiveStringMap settings = settings(name);
    String key = name + " " + settings.asCaseSensitiveMap();
    SqlCatalog catalog = (SqlCatalog) CATALOGS.get(key);
    if (catalog == null) {
      catalog = new SqlCatalog();
      catalog.initialize(name, settings);
      CATALOGS.put(key, catalog);
    }
    return catalog;
  }

  private static CaseInsensitiveStringMap settings(String catalog) {
    Map conf = CollectionConverters.asJava(SparkSession.active().conf().getAll());
    HashMap settings = new HashMap();
    Object given = conf.containsKey(GIVEN + "." + catalog) ? conf.get(GIVEN + "." + catalog) : conf.get(GIVEN);
    if (given != null) {
      settings.put(CatalogSettings.HANDLE, given);
      return new CaseInsensitiveStringMap(settings);
    }
    String prefix = CatalogSettings.PREFIX + catalog + ".";
    Object[] names = conf.keySet().toArray();
    for (int index = 0; index < names.length; index++) {
      if (((String) names[index]).startsWith(prefix)) {
        settings.put(((String) names[index]).substring(prefix.length()), conf.get(names[index]));
      }
    }
    return new CaseInsensitiveStringMap(settings);
  }
}
