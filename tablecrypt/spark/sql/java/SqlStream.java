package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What is appended to a table, in micro-batches. Python says which; a scan of its own reads each batch. */
class SqlStream implements MicroBatchStream, SupportsTriggerAvailableNow {
  private final SqlTable table;
  private final SqlScan scan;
  private final CaseInsensitiveStringMap options;
  /** Where a query ends that reads what is there when it starts; null for others. */
  private JsonNode until;
  private SqlScan batch;

  SqlStream(SqlTable table, SqlScan scan, CaseInsensitiveStringMap options) {
    this.table = table;
    this.scan = scan;
    this.options = options;
  }

  public Offset initialOffset() {
    return new SqlOffset(offset(request("stream_start")).toString());
  }

  public Offset deserializeOffset(String json) {
    return new SqlOffset(json);
  }

  /** Limits are options of the stream, so that this stands for them. */
  public ReadLimit getDefaultReadLimit() {
    return ReadLimit.maxFiles(Integer.MAX_VALUE);
  }

  public Offset latestOffset() {
    throw new UnsupportedOperationException("Spark asks for the latest offset after another one");
  }

  public Offset latestOffset(Offset start, ReadLimit limit) {
    ObjectNode request = request("stream_latest").put("unlimited", limit instanceof ReadAllAvailable);
    request.set("after", parsed(start));
    request.set("until", until);
    JsonNode latest = offset(request);
    return latest.equals(parsed(start)) ? start : new SqlOffset(latest.toString());
  }

  public void prepareForTriggerAvailableNow() {
    until = offset(request("stream_end"));
  }

  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    ObjectNode range = request("plan_appends");
    range.set("after", parsed(start));
    range.set("until", parsed(end));
    batch = scan.ofRange(range);
    return batch.planInputPartitions();
  }

  public PartitionReaderFactory createReaderFactory() {
    return batch.createReaderFactory();
  }

  public void commit(Offset end) {
    // The table keeps what was read.
  }

  public void stop() {
    // Nothing runs between micro-batches.
  }

  private ObjectNode request(String operation) {
    ObjectNode request = table.request(operation);
    request.set("options", Planner.JSON.valueToTree(options.asCaseSensitiveMap()));
    return request;
  }

  private JsonNode offset(ObjectNode request) {
    return table.planner.ask(request).json.required("offset");
  }

  private static JsonNode parsed(Offset offset) {
    try {
      return Planner.JSON.readTree(offset.json());
    } catch (IOException error) {
      throw new IllegalStateException("the checkpoint contains an offset that is not JSON", error);
    }
  }
}
