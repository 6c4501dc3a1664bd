package tablecrypt.jvm;

import java.io.Serializable;
import java.util.Collections;
import java.util.List;

/**
 * Starts the Python in which tasks read what Spark's own reader does not serve.
 *
 * In the driver's process, where tasks of local mode run, it is the planner. Executors start one of their own, with the interpreter of
 * PySpark's workers: it needs this package, and no right in the KMS. What runs there comes from the configuration and environment that the
 * application was started with, which no session changes.
 */
class PythonCommand implements Serializable {
  private final String ofPlanner;
  private final List path;
  private final String ofWorkers;

  /**
   * @param ofPlanner the planner's interpreter
   * @param path where it looks for modules before its own folders
   */
  PythonCommand(String ofPlanner, List path) {
    this.ofPlanner = ofPlanner;
    this.path = path;
    String environment = System.getenv("PYSPARK_PYTHON");
    this.ofWorkers = SparkProcess.conf().get("spark.pyspark.python", environment == null ? "python3" : environment);
  }

  Planner process() {
    return SparkProcess.isDriver() ? PlannerProcess.of(ofPlanner, path) : PlannerProcess.of(ofWorkers, Collections.emptyList());
  }
}
