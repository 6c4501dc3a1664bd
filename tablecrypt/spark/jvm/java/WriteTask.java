package tablecrypt.jvm;

import java.io.Serializable;
import org.apache.spark.TaskContext;
import org.apache.spark.unsafe.Platform;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction2;

/** What Spark runs for each of its partitions: rows into files, and the encrypted result back. A failed attempt removes its files. */
public class WriteTask extends AbstractFunction2 implements Serializable {
  private final WriteJob job;

  WriteTask(WriteJob job) {
    this.job = job;
  }

  public Object apply(Object context, Object rows) {
    WriteAttempt attempt = new WriteAttempt(job, (TaskContext) context);
    try {
      return attempt.run((Iterator) rows);
    } catch (Throwable error) {
      attempt.removeFiles();
      Platform.throwException(error);
      return null;
    }
  }
}
