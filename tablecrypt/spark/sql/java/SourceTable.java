package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table of format("tablecrypt"). Python has taken its options, and says which of them go with writes. */
class SourceTable extends SqlTable {
  SourceTable(SqlCatalog catalog, Planner planner, JsonNode told) {
    super(catalog, planner, told);
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return super.newScanBuilder(CaseInsensitiveStringMap.empty());
  }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    CaseInsensitiveStringMap options =
        new CaseInsensitiveStringMap((HashMap) Planner.JSON.convertValue(told.required("write_options"), HashMap.class));
    SqlWriteBuilder builder = new SqlWriteBuilder(this, null, new Given(info, options));
    builder.truncatesPartitions = told.required("dynamic_overwrite").asBoolean();
    return builder;
  }

  /** What Spark says of a write, with other options. */
  private static class Given implements LogicalWriteInfo {
    private final LogicalWriteInfo info;
    private final CaseInsensitiveStringMap options;

    Given(LogicalWriteInfo info, CaseInsensitiveStringMap options) {
      this.info = info;
      this.options = options;
    }

    public CaseInsensitiveStringMap options() {
      return options;
    }

    public String queryId() {
      return info.queryId();
    }

    public StructType schema() {
      return info.schema();
    }
  }
}
