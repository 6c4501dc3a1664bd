package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Takes columns, filters, a limit, and aggregates of the whole table or of whole partitions. Filters prune files and row groups; Spark
 * evaluates those of them again on the rows that partition values do not answer.
 */
class SqlScanBuilder implements SupportsPushDownRequiredColumns, SupportsPushDownV2Filters, SupportsPushDownLimit, SupportsPushDownAggregates {
  private final SqlTable table;
  private final SqlRowChange change;
  private final CaseInsensitiveStringMap options;
  private StructType columns;
  private Predicate[] filters = new Predicate[0];
  private Predicate[] answered = new Predicate[0];
  private Integer limit;
  private SqlAggregates aggregates;

  /** @param change the DELETE, UPDATE or MERGE that the rows are read for; null for queries */
  SqlScanBuilder(SqlTable table, SqlRowChange change, CaseInsensitiveStringMap options) {
    this.table = table;
    this.change = change;
    this.options = options;
    this.columns = table.schema();
  }

  public void pruneColumns(StructType required) {
    columns = required;
  }

  public Predicate[] pushPredicates(Predicate[] predicates) {
    filters = predicates;
    if (predicates.length == 0 || table.partitioning().length == 0) {
      return predicates;
    }
    ObjectNode request = table.request("answered");
    request.set("filter", SqlFilter.json(predicates));
    JsonNode answers = table.planner.ask(request).json.required("answered");
    ArrayList known = new ArrayList();
    ArrayList rest = new ArrayList();
    for (int index = 0; index < predicates.length; index++) {
      (answers.required(index).asBoolean() ? known : rest).add(predicates[index]);
    }
    answered = (Predicate[]) known.toArray(new Predicate[0]);
    return (Predicate[]) rest.toArray(new Predicate[0]);
  }

  public Predicate[] pushedPredicates() {
    return filters;
  }

  public boolean pushLimit(int rows) {
    limit = Integer.valueOf(rows);
    return true;
  }

  /** Each task reads all of its rows. */
  public boolean isPartiallyPushed() {
    return true;
  }

  /** Spark asks for aggregates only where no filter is left for it to evaluate. */
  public boolean supportCompletePushDown(Aggregation aggregation) {
    aggregates = change == null && filters.length == answered.length ? SqlAggregates.of(table, options, aggregation, answered) : null;
    return aggregates != null;
  }

  public boolean pushAggregation(Aggregation aggregation) {
    return supportCompletePushDown(aggregation);
  }

  public Scan build() {
    if (aggregates != null) {
      return aggregates;
    }
    SqlScan scan = new SqlScan(table, change, options, columns, filters, answered, limit);
    if (change != null) {
      change.addScan(scan);
    }
    return scan;
  }
}
