package tablecrypt.jvm;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;

/** The micro-batches of a streaming query, each a write of its own. A batch that is repeated is committed once (tablecrypt/spark/commit.py). */
class SqlStreamingWrite implements StreamingWrite {
  final SqlWrite write;
  private OpenWrite open;

  SqlStreamingWrite(SqlWrite write) {
    this.write = write;
  }

  public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo physical) {
    open = new OpenWrite(write, write.beginning().put("query_id", write.info.queryId()), null);
    return open.factory();
  }

  public boolean useCommitCoordinator() {
    return true;
  }

  public void commit(long batch, WriterCommitMessage[] messages) {
    ObjectNode fields = Planner.JSON.createObjectNode().put("batch_id", batch);
    open.commit(fields, messages);
  }

  public void abort(long batch, WriterCommitMessage[] messages) {
    if (open != null) {
      open.abort();
    }
  }
}
