package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.connector.write.DeltaWrite;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.WriteBuilder;

/** Takes what a write replaces: nothing, all rows, those that a condition matches, or the table partitions that the rows fall into. */
class SqlWriteBuilder implements DeltaWriteBuilder, SupportsTruncate, SupportsDynamicOverwrite {
  private static final String APPEND = "append";
  private static final String OVERWRITE = "overwrite";
  private static final String OVERWRITE_PARTITIONS = "overwrite_partitions";

  private final SqlTable table;
  private final LogicalWriteInfo info;
  private String mode;
  private JsonNode filter = Planner.JSON.createArrayNode();

  SqlWriteBuilder(SqlTable table, LogicalWriteInfo info) {
    this.table = table;
    this.info = info;
    this.mode = APPEND;
  }

  public WriteBuilder truncate() {
    mode = OVERWRITE;
    return this;
  }

  public WriteBuilder overwriteDynamicPartitions() {
    mode = OVERWRITE_PARTITIONS;
    return this;
  }

  public DeltaWrite build() {
    return new SqlWrite(table, info, mode, filter);
  }
}
