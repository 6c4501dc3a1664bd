package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Locale;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.distributions.Distributions;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NullOrdering;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.DeltaBatchWrite;
import org.apache.spark.sql.connector.write.DeltaWrite;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RequiresDistributionAndOrdering;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.internal.SQLConf;

/** A write that is planned: how Spark distributes and sorts the rows, as Python says (tablecrypt/spark/sql/writes/distribution.py). */
class SqlWrite implements DeltaWrite, RequiresDistributionAndOrdering {
  final SqlTable table;
  final SqlRowChange change;
  final LogicalWriteInfo info;
  private final String mode;
  private final JsonNode filter;
  private JsonNode layout;
  private RowSources sources;
  private JsonNode committed;
  private boolean isStream = false;

  SqlWrite(SqlTable table, SqlRowChange change, LogicalWriteInfo info, String mode, JsonNode filter) {
    this.table = table;
    this.change = change;
    this.info = info;
    this.mode = mode;
    this.filter = filter;
  }

  public String toString() {
    return table.name() + " " + (change == null ? mode : change.description());
  }

  public String description() {
    return toString();
  }

  public DeltaBatchWrite toBatch() {
    SqlBatchWrite write = new SqlBatchWrite(this);
    boolean isCounted = change != null && change.command() == RowLevelOperation.Command.MERGE;
    return isCounted ? SummarizedWrite.of(write) : write;
  }

  public StreamingWrite toStreaming() {
    isStream = true;
    return new SqlStreamingWrite(this);
  }

  /** Of a stream Spark asks for no numbers when a batch has ended, and would show zeros. */
  public CustomMetric[] supportedCustomMetrics() {
    return isStream ? new CustomMetric[0] : WriteMetrics.all();
  }

  /** Spark asks when the write has ended. */
  public CustomTaskMetric[] reportDriverMetrics() {
    return WriteMetrics.of(committed);
  }

  /** Take the numbers of the snapshot that the write has committed. */
  void hasCommitted(JsonNode metrics) {
    committed = metrics;
  }

  /** A request about this write. */
  ObjectNode request(String operation) {
    ObjectNode request = table.request(operation).put("mode", mode);
    request.set("filter", filter);
    request.set("options", Planner.JSON.valueToTree(info.options().asCaseSensitiveMap()));
    request.put("case_sensitive", SQLConf.get().caseSensitiveAnalysis());
    if (change != null) {
      request.put("command", change.command().toString().toLowerCase(Locale.ROOT));
    }
    if (takesAnyRows()) {
      request.put("row_schema", info.schema().json());
    }
    return request;
  }

  /** Take where the rows come from, as the statement's optimized plan tells. */
  void comesFrom(RowSources sources) {
    this.sources = sources;
  }

  /** The request that opens this write. That of protected columns says why rows may hold masks, unless nobody has looked at the plan. */
  ObjectNode beginning() {
    ObjectNode request = request("begin_write");
    if (sources != null && change == null && table.protectedColumns().length > 0) {
      request.put("masks", sources.masks());
    }
    return request;
  }

  private boolean takesAnyRows() {
    return change == null && table.takesAnyRows();
  }

  /** What brings rows to the table's columns; null where Spark has done so. */
  RowAlignment alignment() {
    if (!takesAnyRows()) {
      return null;
    }
    String columns = table.planner.ask(request("align_rows")).json.required("schema").asText();
    return RowAlignment.of(table.name(), columns, info.schema());
  }

  /** A delta that only deletes has no rows. */
  boolean hasRows() {
    return info.schema().length() > 0;
  }

  // Distribution and order

  private synchronized JsonNode layout() {
    if (layout == null) {
      layout = table.planner.ask(request("write_layout").put("rows", hasRows())).json;
    }
    return layout;
  }

  public Distribution requiredDistribution() {
    String kind = layout().required("distribution").asText();
    if (kind.equals("range")) {
      return Distributions.ordered(ordering("ranges"));
    }
    return kind.equals("hash") ? (Distribution) Distributions.clustered(clustering()) : Distributions.unspecified();
  }

  private Expression[] clustering() {
    JsonNode told = layout().required("clustering");
    Expression[] clustering = new Expression[told.size()];
    for (int index = 0; index < clustering.length; index++) {
      clustering[index] = expression(told.required(index));
    }
    return clustering;
  }

  public boolean distributionStrictlyRequired() {
    return layout().has("strict") && layout().required("strict").asBoolean();
  }

  public long advisoryPartitionSizeInBytes() {
    return layout().required("advisory_bytes").asLong();
  }

  /** Whether a writer brings rows of a partition together. Otherwise they come partition by partition. */
  boolean groups() {
    return layout().required("groups").asBoolean();
  }

  public SortOrder[] requiredOrdering() {
    return ordering("ordering");
  }

  private SortOrder[] ordering(String name) {
    JsonNode told = layout().required(name);
    SortOrder[] ordering = new SortOrder[told.size()];
    for (int index = 0; index < ordering.length; index++) {
      JsonNode field = told.required(index);
      SortDirection direction = field.required("ascending").asBoolean() ? SortDirection.ASCENDING : SortDirection.DESCENDING;
      NullOrdering nulls = field.required("nulls_first").asBoolean() ? NullOrdering.NULLS_FIRST : NullOrdering.NULLS_LAST;
      ordering[index] = Expressions.sort(expression(field), direction, nulls);
    }
    return ordering;
  }

  private static Expression expression(JsonNode told) {
    boolean isColumn = told.required("name").asText().equals("identity");
    return isColumn ? Expressions.column(QuotedName.of(told.required("column"))) : SqlTable.transform(told);
  }
}
