package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.colstats.ColumnStatistics;

/**
 * How large a scan is, by what Python planned: its files' rows, and for each column what these take up in memory by Spark's own measure of the
 * type. Files hold less, since they are compressed, and joins would send tables to all executors that do not fit. Where they hold more, as of
 * long strings, that counts.
 */
class SqlStatistics implements Statistics {
  private final long rows;
  private final long bytes;
  private final JsonNode distinct;

  SqlStatistics(JsonNode plan, ScanColumns layout) {
    rows = plan.required("rows").asLong();
    bytes = bytes(plan.required("stored_bytes"), layout, rows);
    distinct = plan.required("distinct");
  }

  private static long bytes(JsonNode stored, ScanColumns layout, double rows) {
    // A scan of no column, as for count(*), has rows all the same.
    double bytes = layout.kinds.length == 0 ? rows : 0;
    for (int index = 0; index < layout.kinds.length; index++) {
      double inFiles = layout.kinds[index] == ScanColumns.STORED ? stored.required(layout.sources[index]).asDouble() : 0;
      bytes += Math.max(rows * layout.types[index].defaultSize(), inFiles);
    }
    return (long) bytes;
  }

  public OptionalLong sizeInBytes() {
    return OptionalLong.of(bytes);
  }

  public OptionalLong numRows() {
    return OptionalLong.of(rows);
  }

  public Map columnStats() {
    HashMap known = new HashMap();
    for (int index = 0; index < distinct.size(); index++) {
      JsonNode column = distinct.required(index);
      known.put(Expressions.column(column.required("column").asText()), new Distinct(column.required("count").asLong()));
    }
    return known;
  }

  /** How many values of a column differ. */
  private static class Distinct implements ColumnStatistics {
    private final long count;

    Distinct(long count) {
      this.count = count;
    }

    public OptionalLong distinctCount() {
      return OptionalLong.of(count);
    }
  }
}
