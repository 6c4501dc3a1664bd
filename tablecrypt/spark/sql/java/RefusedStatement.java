package tablecrypt.jvm;

import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.unsafe.Platform;
import scala.Option;
import scala.collection.immutable.HashMap;

/** An error of the planner in a statement where Spark replaces an IllegalArgumentException of the catalog, but not an AnalysisException. */
class RefusedStatement extends AnalysisException {
  private RefusedStatement(PlannerError error) {
    super(
        error.getMessage(),
        Option.empty(),
        Option.empty(),
        Option.apply(error),
        Option.empty(),
        new HashMap(),
        new QueryContext[0]);
  }

  /** Throw it past Spark's interfaces, which declare no such exception. */
  static void raise(PlannerError error) {
    Platform.throwException(new RefusedStatement(error));
  }
}
