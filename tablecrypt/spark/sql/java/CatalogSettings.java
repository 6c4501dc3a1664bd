package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * What a catalog is opened with: the Python interpreter that plans for it, and PyIceberg's properties.
 *
 * A program that runs in Python gives both itself, and they stand in no configuration: the option spark.sql.catalog.NAME.given of the
 * session that it gave them for says which they are. Otherwise the properties are the options spark.sql.catalog.NAME.*, which any user of
 * the session may set. The interpreter comes from the application's own configuration or the environment, which they may not: it is a
 * program that runs beside the driver. Python refuses of the properties those that name code to import, where a session has set them.
 */
class CatalogSettings {
  static final String PYTHON = "python";
  static final String HANDLE = "given";
  static final String PREFIX = "spark.sql.catalog.";
  private static final Map GIVEN = new ConcurrentHashMap();

  final String python;
  /** Folders to look for Python modules in, before the interpreter's own. */
  final List path;
  final Map properties;
  /** Names of the properties that stand in Spark's configuration, where event logs and the UI show them. */
  final List inSpark;
  /** Those of them that the application was not started with: a user of the session has set them. */
  final List ofSession = new ArrayList();

  private CatalogSettings(String python, List path, Map properties, Map inSpark) {
    this.python = python;
    this.path = path;
    this.properties = properties;
    this.inSpark = new ArrayList(inSpark.keySet());
  }

  static void give(String handle, JsonNode told) {
    List path = (List) Planner.JSON.convertValue(told.required("path"), ArrayList.class);
    Map properties = (Map) Planner.JSON.convertValue(told.required("properties"), HashMap.class);
    CatalogSettings settings = new CatalogSettings(told.required(PYTHON).asText(), path, properties, new HashMap());
    GIVEN.put(handle, settings);
    // Python's imports take as long as Spark's own first statement: they run beside it.
    PlannerProcess.of(settings);
  }

  static CatalogSettings of(String catalog, CaseInsensitiveStringMap options) {
    if (options.containsKey(HANDLE)) {
      return given(catalog, options.get(HANDLE));
    }
    String python = SparkProcess.conf().get(PREFIX + catalog + "." + PYTHON, "");
    HashMap properties = new HashMap(options.asCaseSensitiveMap());
    Object asked = properties.remove(PYTHON);
    if (asked != null && !asked.equals(python)) {
      throw new IllegalArgumentException(
          PREFIX + catalog + "." + PYTHON + " is taken from the configuration that the application was started with, not from a session");
    }
    CatalogSettings settings = new CatalogSettings(python.isEmpty() ? fromEnvironment() : python, new ArrayList(), properties, properties);
    for (int index = 0; index < settings.inSpark.size(); index++) {
      Object name = settings.inSpark.get(index);
      if (!properties.get(name).equals(SparkProcess.conf().get(PREFIX + catalog + "." + name, null))) {
        settings.ofSession.add(name);
      }
    }
    return settings;
  }

  private static CatalogSettings given(String catalog, String handle) {
    CatalogSettings given = (CatalogSettings) GIVEN.get(handle);
    if (given == null) {
      throw new IllegalArgumentException(
          PREFIX + catalog + "." + HANDLE + " is set by tablecrypt.spark.catalog alone, and no program of this application gave these settings");
    }
    return given;
  }

  private static String fromEnvironment() {
    String driver = System.getenv("PYSPARK_DRIVER_PYTHON");
    String any = System.getenv("PYSPARK_PYTHON");
    return driver != null ? driver : any != null ? any : "python3";
  }
}
