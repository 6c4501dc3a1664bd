package tablecrypt.jvm;

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
 * Takes columns, filters, a limit, and aggregates of the whole table. Filters prune files and row groups; Spark evaluates all of them again on
 * the rows.
 */
class SqlScanBuilder implements SupportsPushDownRequiredColumns, SupportsPushDownV2Filters, SupportsPushDownLimit, SupportsPushDownAggregates {
  private final SqlTable table;
  private final SqlRowChange change;
  private final CaseInsensitiveStringMap options;
  private StructType columns;
  private Predicate[] filters = new Predicate[0];
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
    return predicates;
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

  /** Spark asks for aggregates only where no filter is left for it to evaluate, which is so where there is none. */
  public boolean supportCompletePushDown(Aggregation aggregation) {
    aggregates = change == null && filters.length == 0 ? SqlAggregates.of(table, aggregation) : null;
    return aggregates != null;
  }

  public boolean pushAggregation(Aggregation aggregation) {
    return supportCompletePushDown(aggregation);
  }

  public Scan build() {
    if (aggregates != null) {
      return aggregates;
    }
    SqlScan scan = new SqlScan(table, change, options, columns, filters, limit);
    if (change != null) {
      change.addScan(scan);
    }
    return scan;
  }
}
