package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsDeleteV2;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** One table at one snapshot, as Python told of it when it was loaded. */
public class SqlTable implements SupportsRead, SupportsWrite, SupportsRowLevelOperations, SupportsDeleteV2, SupportsMetadataColumns {
  private static final String PLAIN = "{}";
  private static final String[] VERSION_OPTIONS = {
    "snapshot-id", "as-of-timestamp", "branch", "tag", "start-snapshot-id", "end-snapshot-id", "start-timestamp", "end-timestamp"
  };
  static final MetadataField FILE = new MetadataField("_file", DataTypes.StringType, false, PLAIN);
  static final MetadataField POSITION = new MetadataField("_pos", DataTypes.LongType, false, PLAIN);
  static final MetadataField SPEC_ID = new MetadataField("_spec_id", DataTypes.IntegerType, false, PLAIN);
  static final MetadataField DELETED = new MetadataField("_deleted", DataTypes.BooleanType, false, PLAIN);
  // A row that is updated keeps its id, and gets the sequence number of the snapshot that updates it.
  static final MetadataField ROW_ID =
      new MetadataField("_row_id", DataTypes.LongType, true, "{\"__preserve_on_delete\": false, \"__preserve_on_reinsert\": true}");
  static final MetadataField LAST_UPDATED =
      new MetadataField(
          "_last_updated_sequence_number",
          DataTypes.LongType,
          true,
          "{\"__preserve_on_delete\": false, \"__preserve_on_update\": false, \"__preserve_on_reinsert\": false}");

  final SqlCatalog catalog;
  final Planner planner;
  final JsonNode told;
  final String handle;
  private final StructType schema;
  private final boolean takesAnyRows;

  SqlTable(SqlCatalog catalog, Planner planner, JsonNode told) {
    this(catalog, planner, told, false);
  }

  private SqlTable(SqlCatalog catalog, Planner planner, JsonNode told, boolean takesAnyRows) {
    this.takesAnyRows = takesAnyRows;
    this.catalog = catalog;
    this.planner = planner;
    this.told = told;
    this.handle = told.required("table").asText();
    this.schema = (StructType) DataType.fromJson(told.required("schema").asText());
  }

  /** The table for an append of a DataFrame, whose columns may be others where the table's properties say so. */
  SqlTable forAppend() {
    return told.required("accepts_any_schema").asBoolean() ? new SqlTable(catalog, planner, told, true) : this;
  }

  /** Starts the Python of tasks. */
  PythonCommand python() {
    return catalog.python();
  }

  /** Whether Spark writes rows without having brought them to the table's columns. */
  boolean takesAnyRows() {
    return takesAnyRows;
  }

  /** A request about this table, as it was loaded. */
  ObjectNode request(String operation) {
    return IcebergSettings.put(Planner.request(operation).put("table", handle));
  }

  public String name() {
    return told.required("name").asText();
  }

  public String id() {
    return told.required("uuid").asText();
  }

  public String version() {
    return told.required("snapshot").asText();
  }

  public StructType schema() {
    return schema;
  }

  /** The columns that have keys of their own, or had some. */
  ProtectedColumn[] protectedColumns() {
    JsonNode paths = told.required("protected");
    ProtectedColumn[] columns = new ProtectedColumn[paths.size()];
    for (int index = 0; index < columns.length; index++) {
      columns[index] = new ProtectedColumn(this, (String[]) Planner.JSON.convertValue(paths.required(index), String[].class), 0);
    }
    return columns;
  }

  public Transform[] partitioning() {
    return transforms(told.required("partitioning"));
  }

  static Transform[] transforms(JsonNode told) {
    Transform[] transforms = new Transform[told.size()];
    for (int index = 0; index < transforms.length; index++) {
      transforms[index] = transform(told.required(index));
    }
    return transforms;
  }

  /** A transform as Python describes it: the path of names to its column, its name and its number. */
  static Transform transform(JsonNode told) {
    String name = told.required("name").asText();
    String path = QuotedName.of(told.required("column"));
    Expression column = Expressions.column(path);
    if (name.equals("bucket")) {
      return Expressions.bucket(told.required("parameter").asInt(), new String[] {path});
    }
    if (name.equals("truncate") || name.equals(SqlTransform.UUID_BUCKET)) {
      Expression width = Expressions.literal(Integer.valueOf(told.required("parameter").asInt()));
      return Expressions.apply(name, new Expression[] {width, column});
    }
    return Expressions.apply(name, new Expression[] {column});
  }

  public Map properties() {
    return (Map) Planner.JSON.convertValue(told.required("properties"), HashMap.class);
  }

  public Set capabilities() {
    HashSet known = new HashSet();
    known.add(TableCapability.BATCH_READ);
    known.add(TableCapability.MICRO_BATCH_READ);
    known.add(TableCapability.BATCH_WRITE);
    known.add(TableCapability.STREAMING_WRITE);
    known.add(TableCapability.TRUNCATE);
    known.add(TableCapability.OVERWRITE_BY_FILTER);
    known.add(TableCapability.OVERWRITE_DYNAMIC);
    if (takesAnyRows) {
      known.add(TableCapability.ACCEPT_ANY_SCHEMA);
    }
    if (SchemaEvolution.CAPABILITY != null) {
      known.add(SchemaEvolution.CAPABILITY);
    }
    return known;
  }

  public MetadataColumn[] metadataColumns() {
    DataType struct = DataType.fromJson(told.required("partition_type").asText());
    MetadataField partition = new MetadataField("_partition", struct, true, PLAIN);
    return new MetadataColumn[] {FILE, POSITION, SPEC_ID, partition, DELETED, ROW_ID, LAST_UPDATED};
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new SqlScanBuilder(version(options), null, options);
  }

  /** The version that options of a read ask for. Of a stream they say something else. */
  private SqlTable version(CaseInsensitiveStringMap options) {
    ObjectNode asked = Planner.JSON.createObjectNode();
    for (int index = 0; index < VERSION_OPTIONS.length; index++) {
      if (options.containsKey(VERSION_OPTIONS[index])) {
        asked.put(VERSION_OPTIONS[index], options.get(VERSION_OPTIONS[index]));
      }
    }
    if (asked.isEmpty()) {
      return this;
    }
    ObjectNode request = request("load_version");
    request.set("options", asked);
    return new SqlTable(catalog, planner, planner.ask(request).json);
  }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return new SqlWriteBuilder(this, null, info);
  }

  // Row-level changes

  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    return new SqlRowChange.Builder(this, info);
  }

  /** Whether a condition matches whole files. */
  public boolean canDeleteWhere(Predicate[] predicates) {
    ObjectNode request = request("can_delete_where");
    request.set("filter", SqlFilter.json(predicates));
    return planner.ask(request).json.required("whole").asBoolean();
  }

  public void deleteWhere(Predicate[] predicates) {
    ObjectNode request = request("delete_where");
    request.set("filter", SqlFilter.json(predicates));
    planner.ask(request);
  }
}
