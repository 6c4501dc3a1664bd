package tablecrypt.jvm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** A table that one statement creates or replaces. Nobody else sees it, nor what is written to it, before the commit. */
public class SqlStagedTable extends SqlTable implements StagedTable {
  SqlStagedTable(SqlCatalog catalog, Planner planner, JsonNode told) {
    super(catalog, planner, told);
  }

  public void commitStagedChanges() {
    planner.ask(end("commit_staged"));
  }

  public void abortStagedChanges() {
    planner.ask(end("abort_staged"));
  }

  /** From Spark 4.2 on, two of a staged table's interfaces have a default for this, and a class has to say which it means. */
  public CustomTaskMetric[] reportDriverMetrics() {
    return new CustomTaskMetric[0];
  }

  private ObjectNode end(String operation) {
    return Planner.request(operation).put("staged", told.required("staged").asText());
  }
}
