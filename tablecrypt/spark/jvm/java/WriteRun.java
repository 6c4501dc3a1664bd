package tablecrypt.jvm;

import org.apache.spark.SparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.execution.QueryExecution;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction0;
import scala.runtime.BoxedUnit;

/** The Spark job of one write. */
public class WriteRun extends AbstractFunction0 {
  private final SparkContext context;
  private final QueryExecution execution;
  private final WriteTask task;
  private final TaskResults results;

  WriteRun(SparkContext context, QueryExecution execution, WriteTask task, TaskResults results) {
    this.context = context;
    this.execution = execution;
    this.task = task;
    this.results = results;
  }

  public Object apply() {
    RDD rows = execution.toRdd();
    context.runJob(rows, task, results, ClassTag$.MODULE$.apply(byte[].class));
    return BoxedUnit.UNIT;
  }
}
