package tablecrypt.jvm;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.UUID;
import org.apache.spark.SparkContext;
import org.apache.spark.api.python.Py4JServer;

/**
 * A Python process for one procedure that runs Spark jobs of this application.
 *
 * PySpark reaches a driver through a Py4J server. It listens on the loopback address for as long as the procedure runs, and serves who knows
 * its secret; that goes through the process's pipe. The planner, which lives as long as the application, never has such a connection.
 */
class JobProcess {
  /** Whether executors are other processes than this one. In local mode the planner's threads use the same cores. */
  static boolean isWorthwhile() {
    String master = SparkProcess.conf().get("spark.master", "");
    return !master.equals("local") && !master.startsWith("local[");
  }

  static PlannerResponse ask(SqlCatalog catalog, ObjectNode request) {
    String tag = "tablecrypt-" + UUID.randomUUID();
    Py4JServer server = new Py4JServer(SparkProcess.conf());
    server.start();
    PlannerProcess process = catalog.newPlanner();
    boolean isDone = false;
    try {
      request.putObject("gateway").put("port", server.getListeningPort()).put("secret", server.secret()).put("tag", tag);
      PlannerResponse response = process.ask(request.put("catalog", catalog.open(process)));
      isDone = true;
      return response;
    } finally {
      process.close();
      server.shutdown();
      if (!isDone) {
        SparkContext.getOrCreate().cancelJobsWithTag(tag);
      }
    }
  }
}
