package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportPartitioning;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.connector.read.partitioning.KeyGroupedPartitioning;
import org.apache.spark.sql.connector.read.partitioning.Partitioning;
import org.apache.spark.sql.connector.read.partitioning.UnknownPartitioning;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.internal.connector.PredicateUtils;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.ArraySeq$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A scan of one snapshot. Python plans it when Spark first asks how large it is; keys and deletes of the files are fetched when tasks are made.
 * Spark's own Parquet format reads the files (ReadFormat), and Python those that it does not serve.
 */
class SqlScan implements Batch, SupportsReportStatistics, SupportsReportPartitioning, SupportsRuntimeV2Filtering {
  private static final String BATCHES = "returning_batch";
  private static final long OLD_DAYS = LocalDate.of(1900, 1, 1).toEpochDay();

  private final SqlTable table;
  private final SqlRowChange change;
  private final CaseInsensitiveStringMap options;
  private final StructType columns;
  private final Predicate[] filters;
  private final Predicate[] answered;
  private final Integer limit;
  private final String read = UUID.randomUUID().toString();
  private ObjectNode appends;
  private JsonNode plan;
  private ScanColumns layout;
  private boolean[] left;
  private String[] portable;
  private PlannedFiles files;
  private PartitionReaderFactory factory;
  private long planningNanos;
  private long keysNanos;

  /**
   * @param change what the rows are read for; null for a query
   * @param answered those of the filters that Spark leaves to the plan
   * @param limit so many rows are enough; null for all
   */
  SqlScan(
      SqlTable table, SqlRowChange change, CaseInsensitiveStringMap options, StructType columns, Predicate[] filters, Predicate[] answered,
      Integer limit) {
    this.table = table;
    this.change = change;
    this.options = options;
    this.columns = columns;
    this.filters = filters;
    this.answered = answered;
    this.limit = limit;
  }

  public StructType readSchema() {
    return columns;
  }

  public String description() {
    return table.name() + " [snapshot=" + table.version() + ", filters=" + FilterText.of(filters) + ", limit=" + limit + "]";
  }

  public Batch toBatch() {
    return this;
  }

  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return new SqlStream(table, this, options);
  }

  /** A scan of the same columns in what was appended in a range of snapshots, which the request plan_appends names. */
  SqlScan ofRange(ObjectNode request) {
    SqlScan scan = new SqlScan(table, null, options, columns, filters, answered, null);
    scan.appends = request;
    return scan;
  }

  /** Whether the files that are read will be written again whole. Then Spark names those in which rows change, and all their rows count. */
  private boolean ofWholeFiles() {
    return change != null && !change.isDelta();
  }

  /** Scans of the same rows are read once, where Spark can use an exchange again. That of a change is its own: its commit asks for its plan. */
  public boolean equals(Object other) {
    if (change != null || !(other instanceof SqlScan)) {
      return this == other;
    }
    return ((SqlScan) other).change == null && sameness().equals(((SqlScan) other).sameness());
  }

  public int hashCode() {
    return sameness().hashCode();
  }

  private String sameness() {
    return table.name() + " " + table.id() + " " + table.version() + " " + columns.json() + " " + limit + " "
        + SqlFilter.json(filters);
  }

  // Planning

  /** The plan's handle in Python; null where Spark never looked at the scan. */
  synchronized String planned() {
    return plan == null ? null : plan.required("plan").asText();
  }

  /** The numbers of the files that runtime filters left. */
  synchronized ArrayNode filesLeft() {
    ArrayNode numbers = Planner.JSON.createArrayNode();
    for (int number = 0; left != null && number < left.length; number++) {
      if (left[number]) {
        numbers.add(number);
      }
    }
    return numbers;
  }

  private synchronized JsonNode plan() {
    if (plan == null) {
      ObjectNode request = appends != null ? appends : table.request("plan");
      request.set("options", Planner.JSON.valueToTree(options.asCaseSensitiveMap()));
      request.put("columns", columns.json()).put("limit", limit);
      request.set("filter", SqlFilter.json(filters));
      request.set("answered", SqlFilter.json(answered));
      request.put("row_level", change != null);
      request.put("grouped", appends == null);
      long start = System.nanoTime();
      plan = table.planner.ask(request).json;
      planningNanos = System.nanoTime() - start;
      left = new boolean[plan.required("lengths").size()];
      Arrays.fill(left, true);
      layout = new ScanColumns(columns, table.schema(), (StructType) DataType.fromJson(plan.required("stored").asText()), hasDeletes());
    }
    return plan;
  }

  private boolean hasDeletes() {
    JsonNode deletes = plan.required("deletes");
    for (int number = 0; number < deletes.size(); number++) {
      if (deletes.required(number).asBoolean()) {
        return true;
      }
    }
    return false;
  }

  public Statistics estimateStatistics() {
    JsonNode planned = plan();
    return new SqlStatistics(planned, layout);
  }

  /** By which values rows are together in tasks. */
  public Partitioning outputPartitioning() {
    JsonNode grouping = plan().required("grouping");
    if (grouping.isNull()) {
      return new UnknownPartitioning(0);
    }
    return new KeyGroupedPartitioning(SqlTable.transforms(grouping.required("transforms")), grouping.required("groups").asInt());
  }

  public CustomMetric[] supportedCustomMetrics() {
    return ScanMetrics.all();
  }

  public CustomTaskMetric[] reportDriverMetrics() {
    return ScanMetrics.ofDriver(plan().required("metrics"), planningNanos, keysNanos);
  }

  // Filters that Spark knows only while the query runs

  public NamedReference[] filterAttributes() {
    ArrayList names = new ArrayList();
    if (ofWholeFiles()) {
      names.add(Expressions.column("_file"));
    }
    JsonNode pruning = table.told.required("runtime_filters");
    for (int index = 0; !ofWholeFiles() && limit == null && index < pruning.size(); index++) {
      String name = pruning.required(index).asText();
      // Spark takes names of the scan's own columns alone, and parses them. Since 4.2 it takes the rows of a change to be those whose values
      // are IN the values that match, which null never is.
      if (columns.getFieldIndex(name).isDefined() && (change == null || !columns.apply(name).nullable())) {
        names.add(Expressions.column(QuotedName.of(name)));
      }
    }
    return (NamedReference[]) names.toArray(new NamedReference[0]);
  }

  public void filter(Predicate[] predicates) {
    ObjectNode request = Planner.request("prune").put("plan", plan().required("plan").asText());
    request.set("filter", SqlFilter.json(predicates));
    JsonNode kept = table.planner.ask(request).json.required("files");
    synchronized (this) {
      Arrays.fill(left, false);
      for (int index = 0; index < kept.size(); index++) {
        left[kept.required(index).asInt()] = true;
      }
    }
  }

  // Tasks

  public InputPartition[] planInputPartitions() {
    open();
    JsonNode lengths = plan.required("lengths");
    SparkSession spark = session();
    JsonNode split = plan.required("split");
    long cost = split.required("open_bytes").asLong(spark.sessionState().conf().filesOpenCostInBytes());
    long total = 0;
    for (int number = 0; number < left.length; number++) {
      total += left[number] ? lengths.required(number).asLong() + cost : 0;
    }
    long share = total / Math.max(1, split.required("parallelism").asInt(spark.sparkContext().defaultParallelism()));
    long most = split.required("bytes").asLong(spark.sessionState().conf().filesMaxPartitionBytes());
    most = split.required("adaptive").asBoolean() ? Math.min(most, Math.max(cost, share)) : most;
    ScanParts parts = new ScanParts(plan, portable, files, layout.partitionType(), most, cost);
    for (int number = 0; number < left.length; number++) {
      if (left[number]) {
        parts.add(number);
      }
    }
    return parts.toArray();
  }

  /** Fetch the files' keys and deletes. The endpoint hands them to executors for as long as this scan is held. */
  private synchronized void open() {
    if (files != null) {
      return;
    }
    portable = HadoopFiles.portable(plan(), session().sessionState().newHadoopConf());
    ObjectNode request = Planner.request("open_files").put("plan", plan.required("plan").asText());
    request.put("with_deleted", layout.has(ScanColumns.DELETED));
    ArrayNode numbers = request.putArray("portable");
    for (int number = 0; number < portable.length; number++) {
      if (portable[number] != null) {
        numbers.add(number);
      }
    }
    try {
      long start = System.nanoTime();
      PlannedFiles opened = new PlannedFiles(table.planner.ask(request).bytes);
      keysNanos = System.nanoTime() - start;
      endpoint().hold(read, opened);
      files = opened;
    } catch (IOException error) {
      throw new IllegalStateException("Python described the files in an unexpected form", error);
    }
  }

  /** The same one each time. Spark asks for it with each form that a plan takes, and each new one broadcasts Hadoop's configuration. */
  public synchronized PartitionReaderFactory createReaderFactory() {
    if (factory == null) {
      open();
      factory = newReaderFactory();
    }
    return factory;
  }

  private PartitionReaderFactory newReaderFactory() {
    SparkSession spark = plan.required("vectorized").asBoolean() ? session() : rowByRow();
    StructType none = new StructType();
    ReadFormat format = new ReadFormat(files);
    boolean batches = format.supportBatch(spark, layout.read);
    HashMap options = (HashMap) Planner.JSON.convertValue(plan.required("options"), HashMap.class);
    options.put(ReadKeys.ENDPOINT, endpoint().name());
    options.put(ReadKeys.READ, read);
    options.put(BATCHES, String.valueOf(batches));
    scala.collection.immutable.Map given = scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(options));
    Configuration conf = spark.sessionState().newHadoopConfWithOptions(given);
    scala.collection.immutable.Seq pushed = ArraySeq$.MODULE$.unsafeWrapArray(pushed());
    Function1 rows = format.buildReaderWithPartitionValues(spark, layout.read, none, layout.read, pushed, given, conf);
    return new SqlReaderFactory(rows, batches, endpoint().name(), read, layout, table.python());
  }

  /** The session with Spark's other Parquet reader, as Iceberg's setting vectorization.enabled=false asks. */
  private static SparkSession rowByRow() {
    SparkSession copy = session().cloneSession();
    copy.sessionState().conf().setConfString("spark.sql.parquet.enableVectorizedReader", "false");
    return copy;
  }

  /** Filters for Parquet's row groups: on columns that no file of the table ever had under another name or type. */
  private Filter[] pushed() {
    ArrayList known = new ArrayList();
    for (int index = 0; index < filters.length && !ofWholeFiles(); index++) {
      Option filter = isKnown(filters[index]) ? PredicateUtils.toV1(filters[index]) : Option.empty();
      if (filter.isDefined() && isSteady(((Filter) filter.get()).references())) {
        known.add(filter.get());
      }
    }
    return (Filter[]) known.toArray(new Filter[0]);
  }

  /** Whether all of a predicate is known. Of an OR whose one side is not, toV1 returns the other side alone, which drops rows. */
  private static boolean isKnown(Expression predicate) {
    String name = predicate instanceof Predicate ? ((Predicate) predicate).name() : "";
    if (!name.equals("OR") && !name.equals("AND") && !name.equals("NOT")) {
      return predicate instanceof Predicate && !hasOldTime(predicate) && PredicateUtils.toV1((Predicate) predicate).isDefined();
    }
    Expression[] parts = predicate.children();
    boolean known = true;
    for (int index = 0; index < parts.length; index++) {
      known = known && isKnown(parts[index]);
    }
    return known;
  }

  /** Whether a predicate compares with a time before 1900. toV1 takes it to java.sql's calendar, which lacks ten days of 1582. */
  private static boolean hasOldTime(Expression predicate) {
    Expression[] parts = predicate.children();
    boolean old = false;
    for (int index = 0; index < parts.length; index++) {
      old = old || (parts[index] instanceof LiteralValue && isOldTime((LiteralValue) parts[index]));
    }
    return old;
  }

  private static boolean isOldTime(LiteralValue literal) {
    if (literal.dataType() instanceof DateType && literal.value() != null) {
      return ((Number) literal.value()).longValue() < OLD_DAYS;
    }
    boolean isInstant = literal.dataType() instanceof TimestampType && literal.value() != null;
    return isInstant && ((Number) literal.value()).longValue() < TimeUnit.DAYS.toMicros(OLD_DAYS);
  }

  private boolean isSteady(String[] names) {
    ArrayList steady = (ArrayList) Planner.JSON.convertValue(plan.required("steady"), ArrayList.class);
    return steady.containsAll(Arrays.asList(names));
  }

  private static SparkSession session() {
    return (SparkSession) org.apache.spark.sql.SparkSession.active();
  }

  private static DriverEndpoint endpoint() {
    try {
      return DriverEndpoint.current();
    } catch (Exception error) {
      throw new IllegalStateException("the driver's endpoint for keys does not start", error);
    }
  }
}
