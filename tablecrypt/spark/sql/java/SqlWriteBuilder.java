package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.DeltaWrite;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.WriteBuilder;

/** Takes what a write replaces: nothing, all rows, those that a condition matches, or the table partitions that the rows fall into. */
class SqlWriteBuilder implements DeltaWriteBuilder, SupportsOverwriteV2, SupportsDynamicOverwrite {
  private static final String APPEND = "append";
  private static final String OVERWRITE = "overwrite";
  private static final String OVERWRITE_PARTITIONS = "overwrite_partitions";
  private static final String DELTA = "delta";
  private static final String GROUPS = "groups";

  private final SqlTable table;
  private final SqlRowChange change;
  private final LogicalWriteInfo info;
  /** Whether replacing all rows means those of the partitions that the rows fall into. */
  boolean truncatesPartitions;
  private String mode;
  private JsonNode filter = Planner.JSON.createArrayNode();

  /** @param change the DELETE, UPDATE or MERGE that this writes for; null for other writes */
  SqlWriteBuilder(SqlTable table, SqlRowChange change, LogicalWriteInfo info) {
    this.table = table;
    this.change = change;
    this.info = info;
    this.mode = change == null ? APPEND : change.isDelta() ? DELTA : GROUPS;
  }

  public WriteBuilder overwrite(Predicate[] predicates) {
    mode = OVERWRITE;
    filter = SqlFilter.json(predicates);
    return this;
  }

  public WriteBuilder truncate() {
    mode = truncatesPartitions ? OVERWRITE_PARTITIONS : OVERWRITE;
    return this;
  }

  public WriteBuilder overwriteDynamicPartitions() {
    mode = OVERWRITE_PARTITIONS;
    return this;
  }

  public DeltaWrite build() {
    return new SqlWrite(table, change, info, mode, filter);
  }
}
