package tablecrypt.jvm;

import java.io.Serializable;
import scala.Function1;
import scala.runtime.AbstractFunction1;

/** Spark's function from a file to its rows. On the driver it holds the read's files, so that an RDD without its plan keeps its keys. */
public class ReadFunction extends AbstractFunction1 implements Serializable {
  private final Function1 rows;
  private final transient PlannedFiles held;

  ReadFunction(Function1 rows, PlannedFiles held) {
    this.rows = rows;
    this.held = held;
  }

  public Object apply(Object file) {
    return new ReadByIds(rows, file).open();
  }
}
