package tablecrypt.jvm;

import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;

/** Takes columns, filters and a limit. Filters prune files and row groups; Spark evaluates all of them again on the rows. */
class SqlScanBuilder implements SupportsPushDownRequiredColumns, SupportsPushDownV2Filters, SupportsPushDownLimit {
  private final SqlTable table;
  private StructType columns;
  private Predicate[] filters = new Predicate[0];
  private Integer limit;

  SqlScanBuilder(SqlTable table) {
    this.table = table;
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

  public Scan build() {
    return new SqlScan(table, columns, filters, limit, false);
  }

  /** A scan of files that go whole and are written again: Spark tells it in which of them a row changes. */
  SqlScan ofWholeFiles() {
    return new SqlScan(table, columns, filters, null, true);
  }
}
