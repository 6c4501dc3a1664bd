package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.RuntimeConfig;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableWritePrivilege;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A catalog of encrypted tables in Spark SQL: spark.sql.catalog.prod=tablecrypt.jvm.SqlCatalog. All that it knows Python tells it. */
public class SqlCatalog extends TransformCatalog implements StagingTableCatalog, SupportsNamespaces, ProcedureCatalog {
  private String name;
  private CatalogSettings settings;
  private Planner planner;
  private String handle;

  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
    this.settings = CatalogSettings.of(name, options);
    // Python's imports take a second or more, and Spark has other things to do meanwhile.
    PlannerProcess.of(settings);
  }

  public String name() {
    return name;
  }

  /** How tasks start a Python process. */
  PythonCommand python() {
    return new PythonCommand(settings.python, settings.path);
  }

  /** The process, in which this catalog is open. */
  synchronized Planner planner() {
    Planner running = PlannerProcess.of(settings);
    if (running != planner) {
      handle = open(running);
      planner = running;
    }
    return planner;
  }

  /** Open this catalog in a process, and return its handle there. */
  String open(Planner process) {
    ObjectNode open = Planner.request("open_catalog").put("name", name);
    open.set("properties", Planner.JSON.valueToTree(settings.properties));
    open.set("in_spark", Planner.JSON.valueToTree(settings.inSpark));
    open.set("of_session", Planner.JSON.valueToTree(settings.ofSession));
    open.set("spark", Planner.JSON.valueToTree(privacy()));
    return process.ask(open).json.required("catalog").asText();
  }

  /** A process of its own, which its user closes. */
  PlannerProcess newPlanner() {
    return PlannerProcess.start(settings);
  }

  /** The settings that say whether Spark's messages, in which keys of files travel to executors, are private. */
  private static Map privacy() {
    HashMap settings = new HashMap();
    String[] names = {"spark.master", "spark.authenticate", "spark.network.crypto.enabled", "spark.ssl.rpc.enabled"};
    for (int index = 0; index < names.length; index++) {
      settings.put(names[index], SparkProcess.conf().get(names[index], ""));
    }
    return settings;
  }

  /** A request about this catalog. */
  ObjectNode request(String operation) {
    planner();
    return Planner.request(operation).put("catalog", handle);
  }

  ObjectNode request(String operation, String[] namespace) {
    ObjectNode request = request(operation);
    request.set("namespace", Planner.JSON.valueToTree(namespace));
    return request;
  }

  /** A request about a table, with what the session says of writing where readers do not look yet. */
  ObjectNode request(String operation, Identifier table) {
    RuntimeConfig conf = SparkSession.active().conf();
    ObjectNode request = IcebergSettings.put(request(operation, table.namespace()).put("name", table.name()));
    return request.put("wap_branch", conf.get("spark.wap.branch", null)).put("wap_id", conf.get("spark.wap.id", null));
  }

  private JsonNode askAbout(ObjectNode request, String[] namespace) throws NoSuchNamespaceException {
    try {
      return planner().ask(request).json;
    } catch (PlannerError error) {
      if (error.is("NoSuchNamespaceError")) {
        throw new NoSuchNamespaceException(namespace);
      }
      throw error;
    }
  }

  // Namespaces

  public String[][] listNamespaces() throws NoSuchNamespaceException {
    return listNamespaces(new String[0]);
  }

  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    return (String[][]) Planner.JSON.convertValue(askAbout(request("list_namespaces", namespace), namespace).required("namespaces"), String[][].class);
  }

  public Map loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    return (Map) Planner.JSON.convertValue(askAbout(request("load_namespace", namespace), namespace).required("properties"), HashMap.class);
  }

  public void createNamespace(String[] namespace, Map properties) throws NamespaceAlreadyExistsException {
    ObjectNode request = request("create_namespace", namespace);
    request.set("properties", Planner.JSON.valueToTree(properties));
    try {
      planner().ask(request);
    } catch (PlannerError error) {
      if (error.is("NamespaceAlreadyExistsError")) {
        throw new NamespaceAlreadyExistsException(namespace);
      }
      throw error;
    }
  }

  public void alterNamespace(String[] namespace, NamespaceChange[] changes) throws NoSuchNamespaceException {
    ObjectNode request = request("alter_namespace", namespace);
    SqlChange.put(request, changes);
    askAbout(request, namespace);
  }

  public boolean dropNamespace(String[] namespace, boolean cascade) throws NoSuchNamespaceException, NonEmptyNamespaceException {
    try {
      return askAbout(request("drop_namespace", namespace).put("cascade", cascade), namespace).required("dropped").asBoolean();
    } catch (PlannerError error) {
      if (error.is("NamespaceNotEmptyError")) {
        throw new NonEmptyNamespaceException(namespace);
      }
      throw error;
    }
  }

  // Tables

  public Set capabilities() {
    return Collections.singleton(TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE);
  }

  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    JsonNode found = askAbout(request("list_tables", namespace), namespace).required("tables");
    Identifier[] tables = new Identifier[found.size()];
    for (int index = 0; index < tables.length; index++) {
      tables[index] = Identifier.of(namespace, found.required(index).asText());
    }
    return tables;
  }

  public Table loadTable(Identifier table) throws NoSuchTableException {
    return load(table, request("load_table", table));
  }

  /** INSERT, UPDATE, DELETE and MERGE: what is loaded is written to. A DataFrame's append asks for INSERT alone. */
  public Table loadTable(Identifier name, Set privileges) throws NoSuchTableException {
    Table table = loadTable(name);
    if (table instanceof SqlView) {
      throw new IllegalArgumentException(table.name() + " is a view, which holds no rows: write to the tables that it reads");
    }
    boolean isAppend = privileges.equals(Collections.singleton(TableWritePrivilege.INSERT));
    return isAppend && table instanceof SqlTable ? ((SqlTable) table).forAppend() : table;
  }

  /** VERSION AS OF: the id of a snapshot, or the name of a branch or tag. */
  public Table loadTable(Identifier table, String version) throws NoSuchTableException {
    return load(table, request("load_table", table).put("version", version));
  }

  /** TIMESTAMP AS OF, in microseconds since 1970. */
  public Table loadTable(Identifier table, long timestamp) throws NoSuchTableException {
    return load(table, request("load_table", table).put("timestamp", timestamp));
  }

  /** The table that options of format("tablecrypt") name. */
  SourceTable source(CaseInsensitiveStringMap options) {
    ObjectNode request = request("load_source");
    request.set("options", Planner.JSON.valueToTree(options.asCaseSensitiveMap()));
    return new SourceTable(this, planner(), planner().ask(request).json);
  }

  private Table load(Identifier table, ObjectNode request) throws NoSuchTableException {
    try {
      PlannerResponse response = planner().ask(request);
      if (response.json.has("view")) {
        return SqlView.of(this, table, response.json.required("view"));
      }
      if (response.json.has("rows")) {
        return new LocalTable(response.json.required("rows").asText(), response.bytes);
      }
      return new SqlTable(this, planner(), response.json);
    } catch (PlannerError error) {
      if (error.is("NoSuchTableError")) {
        throw new NoSuchTableException(table);
      }
      throw error;
    }
  }

  public Table createTable(Identifier table, Column[] columns, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return create(SqlDefinition.putDefaults(request("create_table", table), columns), table, SqlDefinition.schema(columns), partitions, properties);
  }

  public Table createTable(Identifier table, StructType schema, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return create(SqlDefinition.putDefaults(request("create_table", table), new Column[0]), table, schema, partitions, properties);
  }

  private Table create(ObjectNode request, Identifier table, StructType schema, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    SqlDefinition.put(request, schema, partitions, properties);
    try {
      return new SqlTable(this, planner(), planner().ask(request).json);
    } catch (PlannerError error) {
      checkIsNew(error, table);
      throw error;
    }
  }

  private static void checkIsNew(PlannerError error, Identifier table) throws TableAlreadyExistsException, NoSuchNamespaceException {
    if (error.is("TableAlreadyExistsError")) {
      throw new TableAlreadyExistsException(table);
    }
    if (error.is("NoSuchNamespaceError")) {
      throw new NoSuchNamespaceException(table.namespace());
    }
  }

  public StagedTable stageCreate(Identifier table, Column[] columns, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    try {
      return stage("stage_create", table, columns, partitions, properties);
    } catch (PlannerError error) {
      checkIsNew(error, table);
      throw error;
    }
  }

  public StagedTable stageReplace(Identifier table, Column[] columns, Transform[] partitions, Map properties)
      throws NoSuchNamespaceException, NoSuchTableException {
    try {
      return stage("stage_replace", table, columns, partitions, properties);
    } catch (PlannerError error) {
      if (error.is("NoSuchTableError")) {
        throw new NoSuchTableException(table);
      }
      throw error;
    }
  }

  public StagedTable stageCreateOrReplace(Identifier table, Column[] columns, Transform[] partitions, Map properties)
      throws NoSuchNamespaceException {
    try {
      return stage("stage_create_or_replace", table, columns, partitions, properties);
    } catch (PlannerError error) {
      if (error.is("NoSuchNamespaceError")) {
        throw new NoSuchNamespaceException(table.namespace());
      }
      throw error;
    }
  }

  private StagedTable stage(String operation, Identifier table, Column[] columns, Transform[] partitions, Map properties) {
    ObjectNode request = SqlDefinition.putDefaults(request(operation, table), columns);
    SqlDefinition.put(request, SqlDefinition.schema(columns), partitions, properties);
    return new SqlStagedTable(this, planner(), planner().ask(request).json);
  }

  public Table alterTable(Identifier table, TableChange[] changes) throws NoSuchTableException {
    ObjectNode request = request("alter_table", table);
    SqlChange.put(request, changes);
    if (SqlChange.setsDefault(changes)) {
      SqlChange.putDefaults(request, changes, loadTable(table).schema());
    }
    try {
      return load(table, request);
    } catch (PlannerError error) {
      RefusedStatement.raise(error);
      throw error;
    }
  }

  public boolean tableExists(Identifier table) {
    try {
      loadTable(table);
      return true;
    } catch (NoSuchTableException absent) {
      return false;
    } catch (PlannerError error) {
      // Its metadata file is gone: it can still be dropped.
      if (error.is("FileNotFoundError")) {
        return true;
      }
      throw error;
    }
  }

  public boolean dropTable(Identifier table) {
    return drop(table, false);
  }

  public boolean purgeTable(Identifier table) {
    return drop(table, true);
  }

  private boolean drop(Identifier table, boolean purge) {
    return planner().ask(request("drop_table", table).put("purge", purge)).json.required("dropped").asBoolean();
  }

  public void renameTable(Identifier from, Identifier to) throws NoSuchTableException, TableAlreadyExistsException {
    ObjectNode request = request("rename_table", from).put("to_name", to.name());
    request.set("to_namespace", Planner.JSON.valueToTree(to.namespace()));
    try {
      planner().ask(request);
    } catch (PlannerError error) {
      if (error.is("NoSuchTableError")) {
        throw new NoSuchTableException(from);
      }
      if (error.is("TableAlreadyExistsError")) {
        throw new TableAlreadyExistsException(to);
      }
      throw error;
    }
  }

  /** Whether a name is that of a view. */
  boolean isView(Identifier name) {
    return planner().ask(request("look_for_view", name)).json.required("found").asBoolean();
  }

  // Procedures

  public UnboundProcedure loadProcedure(Identifier procedure) {
    return new SqlProcedure(this, planner().ask(request("load_procedure", procedure)).json);
  }

  /** Spark 4.1 and newer ask for it. */
  public Identifier[] listProcedures(String[] namespace) {
    JsonNode found = planner().ask(request("list_procedures", namespace)).json.required("procedures");
    Identifier[] procedures = new Identifier[found.size()];
    for (int index = 0; index < procedures.length; index++) {
      procedures[index] = Identifier.of(namespace, found.required(index).asText());
    }
    return procedures;
  }

  // Functions: the version, and the partition transforms

  public Identifier[] listFunctions(String[] namespace) {
    Identifier[] transforms = super.listFunctions(namespace);
    if (transforms.length == 0) {
      return transforms;
    }
    Identifier[] functions = (Identifier[]) Arrays.copyOf(transforms, transforms.length + 1);
    functions[transforms.length] = Identifier.of(namespace, SqlVersion.NAME);
    return functions;
  }

  public UnboundFunction loadFunction(Identifier function) throws NoSuchFunctionException {
    if (known(function).equals(SqlVersion.NAME)) {
      return new SqlVersion(planner().ask(Planner.request("version")).json.required("version").asText());
    }
    return super.loadFunction(function);
  }
}
