package tablecrypt.jvm;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.write.DeltaBatchWrite;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** The one run of a write. */
class SqlBatchWrite implements DeltaBatchWrite {
  private final SqlWrite write;
  private OpenWrite open;

  SqlBatchWrite(SqlWrite write) {
    this.write = write;
  }

  public DeltaWriterFactory createBatchWriterFactory(PhysicalWriteInfo physical) {
    open = new OpenWrite(write, write.beginning(), write.alignment());
    return open.factory();
  }

  public boolean useCommitCoordinator() {
    return true;
  }

  public void commit(WriterCommitMessage[] messages) {
    commitCounted(messages, null);
  }

  /** @param counts what a MERGE did to the target's rows; null where nobody says */
  void commitCounted(WriterCommitMessage[] messages, ObjectNode counts) {
    ObjectNode fields = Planner.JSON.createObjectNode();
    if (counts != null) {
      fields.set("counts", counts);
    }
    if (write.change != null) {
      write.change.describeScan(fields);
    }
    write.hasCommitted(open.commit(fields, messages).get("metrics"));
  }

  public void abort(WriterCommitMessage[] messages) {
    open.abort();
  }
}
