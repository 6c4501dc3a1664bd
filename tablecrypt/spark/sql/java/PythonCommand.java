package tablecrypt.jvm;

import java.io.Serializable;
import java.util.List;

/**
 * Starts the Python in which tasks read what Spark's own reader does not serve.
 *
 * In the driver's process, where tasks of local mode run, it is the planner. Executors start one of their own, with the interpreter of
 * PySpark's workers: it needs this package, and no right in the KMS.
 */
class PythonCommand implements Serializable {
  private static final String SETTING = "spark.pyspark.python";

  private final String python;
  private final List path;

  /**
   * @param python the planner's interpreter
   * @param path where it looks for modules before its own folders
   */
  PythonCommand(String python, List path) {
    this.python = python;
    this.path = path;
  }

  Planner process() {
    if (SparkProcess.isDriver()) {
      return Planner.of(python, path);
    }
    return Planner.of(ofExecutor(), java.util.Collections.emptyList());
  }

  /** Never what a message says: the executor's own configuration. */
  private static String ofExecutor() {
    String any = System.getenv("PYSPARK_PYTHON");
    return SparkProcess.conf().get(SETTING, any == null ? "python3" : any);
  }
}
