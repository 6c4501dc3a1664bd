package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.colstats.ColumnStatistics;
import org.apache.spark.sql.types.StructType;

/** How large a scan is, by what Python planned: the rows of its files, and of their bytes the share of the scan's columns. */
class SqlStatistics implements Statistics {
  private final long rows;
  private final long bytes;
  private final JsonNode distinct;

  SqlStatistics(JsonNode plan, StructType columns, StructType all) {
    long width = Math.max(1, columns.defaultSize());
    this.rows = plan.required("rows").asLong();
    this.bytes = (long) (plan.required("bytes").asDouble() * Math.min(width, Math.max(1, all.defaultSize())) / Math.max(1, all.defaultSize()));
    this.distinct = plan.required("distinct");
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
