package tablecrypt.jvm;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Locale;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A DELETE, UPDATE or MERGE. Copy-on-write: the files that have such rows are written again. */
class SqlRowChange implements RowLevelOperation {
  private static final NamedReference FILE = Expressions.column("_file");
  private static final NamedReference POSITION = Expressions.column("_pos");
  private static final NamedReference ROW_ID = Expressions.column("_row_id");
  private static final NamedReference LAST_UPDATED = Expressions.column("_last_updated_sequence_number");

  final SqlTable table;
  private final RowLevelOperation.Command command;
  /** Spark may make several before it settles on one. */
  private final ArrayList scans = new ArrayList();

  SqlRowChange(SqlTable table, RowLevelOperation.Command command) {
    this.table = table;
    this.command = command;
  }

  boolean isDelta() {
    return false;
  }

  public String description() {
    return command + (isDelta() ? " (merge-on-read)" : " (copy-on-write)");
  }

  public RowLevelOperation.Command command() {
    return command;
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new SqlScanBuilder(table, this, options);
  }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return new SqlWriteBuilder(table, this, info);
  }

  /** Lineage comes first: that is how SqlWriter finds it. */
  public NamedReference[] requiredMetadataAttributes() {
    return isDelta() ? new NamedReference[] {ROW_ID, LAST_UPDATED} : new NamedReference[] {ROW_ID, LAST_UPDATED, FILE};
  }

  synchronized void addScan(SqlScan scan) {
    scans.add(scan);
  }

  /** Tell Python which plans the rows came from, and which of their files runtime filters left. */
  synchronized void describeScan(ObjectNode fields) {
    ArrayNode plans = fields.putArray("scans");
    for (int index = 0; index < scans.size(); index++) {
      SqlScan scan = (SqlScan) scans.get(index);
      if (scan.planned() != null) {
        plans.addObject().put("plan", scan.planned()).set("files", scan.filesLeft());
      }
    }
  }

  /** Merge-on-read: rows are marked as deleted in deletion vectors, and new versions of them are added. */
  static class Delta extends SqlRowChange implements SupportsDelta {
    Delta(SqlTable table, RowLevelOperation.Command command) {
      super(table, command);
    }

    boolean isDelta() {
      return true;
    }

    public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return new SqlWriteBuilder(table, this, info);
    }

    public NamedReference[] rowId() {
      return new NamedReference[] {FILE, POSITION};
    }

    public boolean representUpdateAsDeleteAndInsert() {
      return true;
    }
  }

  /** Takes the one or the other, as write.delete.mode, write.update.mode and write.merge.mode say. */
  static class Builder implements RowLevelOperationBuilder {
    private final SqlTable table;
    private final RowLevelOperationInfo info;

    Builder(SqlTable table, RowLevelOperationInfo info) {
      this.table = table;
      this.info = info;
    }

    public RowLevelOperation build() {
      String command = info.command().toString().toLowerCase(Locale.ROOT);
      boolean isDelta = table.planner.ask(table.request("row_change").put("command", command)).json.required("delta").asBoolean();
      return isDelta ? new Delta(table, info.command()) : new SqlRowChange(table, info.command());
    }
  }
}
