package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Collections;
import java.util.Iterator;
import java.util.Map;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.DataFrameWriterV2;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType;

/** A procedure as Python describes it: CALL prod.system.rotate_kek(table => 'db.orders'). */
class SqlProcedure implements UnboundProcedure, BoundProcedure {
  private static final String FILE_LIST_VIEW = "file_list_view";
  private static final String WHERE = "where";
  private static final String COPY = "tablecrypt-copy";

  private final SqlCatalog catalog;
  private final JsonNode told;

  SqlProcedure(SqlCatalog catalog, JsonNode told) {
    this.catalog = catalog;
    this.told = told;
  }

  public String name() {
    return told.required("name").asText();
  }

  public String description() {
    return told.required("description").asText();
  }

  public BoundProcedure bind(StructType arguments) {
    if (told.has("refused")) {
      throw new UnsupportedOperationException(told.required("refused").asText());
    }
    return this;
  }

  public boolean isDeterministic() {
    return false;
  }

  public ProcedureParameter[] parameters() {
    JsonNode all = told.required("parameters");
    ProcedureParameter[] parameters = new ProcedureParameter[all.size()];
    for (int index = 0; index < parameters.length; index++) {
      JsonNode each = all.required(index);
      DataType type = DataType.fromDDL(each.required("type").asText());
      ProcedureParameter.Builder builder = ProcedureParameter.in(each.required("name").asText(), type);
      parameters[index] = (each.required("required").asBoolean() ? builder : builder.defaultValue("NULL")).build();
    }
    return parameters;
  }

  public Iterator call(InternalRow values) {
    ObjectNode request = IcebergSettings.put(catalog.request("call_procedure")).put("name", name());
    request.put("case_sensitive", SQLConf.get().caseSensitiveAnalysis());
    ObjectNode arguments = request.putObject("arguments");
    ProcedureParameter[] parameters = parameters();
    for (int index = 0; index < parameters.length; index++) {
      if (!values.isNullAt(index)) {
        arguments.set(parameters[index].name(), json(values, index, parameters[index].dataType()));
      }
    }
    SparkSession session = SparkSession.active();
    if (arguments.has(FILE_LIST_VIEW)) {
      arguments.set("file_list", files(session, arguments.required(FILE_LIST_VIEW).asText()));
    }
    CopiedSource source = source(session, arguments);
    if (session.catalog().currentCatalog().equals(catalog.name())) {
      request.put("current_namespace", session.catalog().currentDatabase());
    }
    if (arguments.has(WHERE)) {
      JsonNode columns = ask(request.deepCopy().put("operation", "condition_columns")).json.required("schema");
      request.set(WHERE, CallCondition.of(session, (StructType) DataType.fromJson(columns.asText()), arguments.required(WHERE).asText()));
    }
    // Rows that Spark copies are remembered in the planner that commits them.
    boolean hasJobs = source == null && told.required("runs_jobs").asBoolean() && !arguments.has("workers");
    PlannerResponse response = hasJobs && JobProcess.isWorthwhile() ? JobProcess.ask(catalog, request) : ask(request);
    PlannerResponse rows = response;
    JsonNode copies = response.json.required("copies");
    for (int index = 0; index < copies.size(); index++) {
      JsonNode copy = copies.required(index);
      rows = copy.has("renamed") ? movedAway(session, copy) : copied(source, copy);
    }
    if (response.json.has("changed")) {
      // What Spark has cached of the table is of the state before.
      session.catalog().refreshTable(QuotedName.of(response.json.required("changed")));
    }
    JsonNode statements = response.json.required("statements");
    for (int index = 0; index < statements.size(); index++) {
      session.sql(statements.required(index).asText());
    }
    return Collections.singletonList(new LocalTable(rows.json.required("name").asText(), rows.bytes)).iterator();
  }

  /** What the rows of a call are to be copied from, described in its arguments; null where Python copies them, or there is nothing to copy. */
  private CopiedSource source(SparkSession session, ObjectNode arguments) {
    String argument = told.required("copies").asText();
    if (!arguments.has(argument)) {
      return null;
    }
    String name = arguments.required(argument).asText();
    boolean isTable = told.required("copies_tables").asBoolean();
    if (isTable && !CopiedSource.isOfSession(session, name)) {
      return null;
    }
    if (isTable) {
      // Spark remembers which files a table had when it was last read.
      session.catalog().refreshTable(name);
    }
    CopiedSource source = CopiedSource.of(session, name);
    source.describe(arguments);
    if (isTable) {
      source.describeTable(session, arguments);
    }
    return source;
  }

  /** Copy the rows of a table that has another name from here on, so that nobody adds to it by the one that it had. */
  private PlannerResponse movedAway(SparkSession session, JsonNode copy) {
    JsonNode renamed = copy.required("renamed");
    String name = renamed.required("name").asText();
    String backup = renamed.required("backup").asText();
    session.sql("ALTER TABLE spark_catalog." + name + " RENAME TO " + backup);
    PlannerResponse rows;
    try {
      rows = copied(CopiedSource.of(session, "spark_catalog." + backup), copy);
    } catch (RuntimeException failed) {
      session.sql("ALTER TABLE spark_catalog." + backup + " RENAME TO " + name);
      throw failed;
    }
    if (renamed.required("is_dropped").asBoolean()) {
      session.sql("DROP TABLE spark_catalog." + backup);
    }
    return rows;
  }

  /** Write rows of a source, and return what Python says of the commit. */
  private PlannerResponse copied(CopiedSource source, JsonNode copy) {
    String handle = copy.required("copy").asText();
    Dataset rows = source.rows(copy.required("condition").asText());
    ObjectNode listing = catalog.request("list_source_files").put("copy", handle);
    ArrayNode files = CopiedSource.files(rows);
    source.refuseMasks(SparkSession.active(), files);
    listing.set("files", files);
    ask(listing);
    String[] columns = (String[]) Planner.JSON.convertValue(copy.required("columns"), String[].class);
    DataFrameWriterV2 writer = rows.selectExpr(columns).writeTo(copy.required("into").asText()).option(COPY, handle);
    try {
      if (copy.has("made")) {
        create(writer, copy.required("made"));
      } else {
        writer.append();
      }
    } catch (AnalysisException wrongTable) {
      throw new IllegalStateException(wrongTable.getMessage(), wrongTable);
    }
    return ask(catalog.request("copied_rows").put("copy", handle));
  }

  private static void create(DataFrameWriterV2 writer, JsonNode made) throws TableAlreadyExistsException {
    Iterator properties = made.required("properties").fields();
    while (properties.hasNext()) {
      Map.Entry property = (Map.Entry) properties.next();
      writer.tableProperty((String) property.getKey(), ((JsonNode) property.getValue()).asText());
    }
    JsonNode names = made.required("partitions");
    if (names.size() > 0) {
      Column[] others = new Column[names.size() - 1];
      for (int index = 0; index < others.length; index++) {
        others[index] = functions.col(QuotedName.of(names.required(index + 1).asText()));
      }
      writer.partitionedBy(functions.col(QuotedName.of(names.required(0).asText())), others);
    }
    writer.create();
  }

  /** The files of a view: their location, and when they were last changed in microseconds. */
  private static ArrayNode files(SparkSession session, String view) {
    ArrayNode files = Planner.JSON.createArrayNode();
    Iterator rows = session.sql("SELECT file_path, unix_micros(last_modified) FROM " + view).collectAsList().iterator();
    while (rows.hasNext()) {
      Row row = (Row) rows.next();
      files.addArray().add(row.getString(0)).add(row.getLong(1));
    }
    return files;
  }

  private PlannerResponse ask(ObjectNode request) {
    return catalog.planner().ask(request);
  }

  private static JsonNode json(SpecializedGetters values, int index, DataType type) {
    if (type instanceof LongType || type instanceof TimestampType) {
      return Planner.JSON.getNodeFactory().numberNode(values.getLong(index));
    }
    if (type instanceof IntegerType) {
      return Planner.JSON.getNodeFactory().numberNode(values.getInt(index));
    }
    if (type instanceof DoubleType) {
      return Planner.JSON.getNodeFactory().numberNode(values.getDouble(index));
    }
    if (type instanceof BooleanType) {
      return Planner.JSON.getNodeFactory().booleanNode(values.getBoolean(index));
    }
    if (type instanceof ArrayType) {
      return array(values.getArray(index), ((ArrayType) type).elementType());
    }
    if (type instanceof MapType) {
      return object(values.getMap(index));
    }
    return Planner.JSON.getNodeFactory().textNode(values.getUTF8String(index).toString());
  }

  private static ArrayNode array(ArrayData values, DataType type) {
    ArrayNode array = Planner.JSON.createArrayNode();
    for (int index = 0; index < values.numElements(); index++) {
      if (values.isNullAt(index)) {
        throw new IllegalArgumentException("an array that is an argument of a procedure has an element that is null");
      }
      array.add(json(values, index, type));
    }
    return array;
  }

  private static ObjectNode object(MapData values) {
    ObjectNode object = Planner.JSON.createObjectNode();
    for (int index = 0; index < values.numElements(); index++) {
      if (values.valueArray().isNullAt(index)) {
        throw new IllegalArgumentException("a map that is an argument of a procedure has a value that is null");
      }
      object.put(values.keyArray().getUTF8String(index).toString(), values.valueArray().getUTF8String(index).toString());
    }
    return object;
  }
}
