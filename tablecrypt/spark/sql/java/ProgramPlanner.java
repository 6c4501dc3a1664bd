package tablecrypt.jvm;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.AppendData$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.unsafe.Platform;
import scala.Option;

/**
 * A Python program that writes a DataFrame of its own: it plans the write and commits it, and takes the requests through Py4J.
 *
 * The statement runs in the DataFrame's own session, whose settings and catalogs stay as they are: its table is in no catalog.
 */
public class ProgramPlanner extends Planner {
  private static final String APPEND = "byPosition";
  private static final Object END = new Object();

  private final LinkedBlockingQueue waiting = new LinkedBlockingQueue();
  private boolean isClosed = false;

  synchronized void send(byte[] json, byte[] bytes, CompletableFuture response) throws IOException {
    if (isClosed) {
      throw new IOException("the write has ended");
    }
    waiting.add(new ProgramRequest(json, bytes, response));
  }

  /** Wait for the next request; null when this is closed. */
  public ProgramRequest next() throws InterruptedException {
    Object request = waiting.take();
    return request == END ? null : (ProgramRequest) request;
  }

  /** After this no request waits, and none is sent. */
  public synchronized void close() {
    isClosed = true;
    ArrayList left = new ArrayList();
    waiting.drainTo(left);
    for (int index = 0; index < left.size(); index++) {
      if (left.get(index) != END) {
        ((ProgramRequest) left.get(index)).end();
      }
    }
    waiting.add(END);
  }

  /**
   * Write a Dataset's rows.
   *
   * @param rows with the table's columns, in their order and of their types
   * @param table what Python knows of it, as of one that a catalog loads
   */
  public void append(Dataset rows, String table) throws IOException {
    PreparedTable prepared = new PreparedTable(this, JSON.readTree(table));
    DataSourceV2Relation relation = DataSourceV2Relation.create(prepared, Option.apply(new TransformCatalog()), Option.empty());
    Dataset.ofRows((SparkSession) rows.sparkSession(), appended(relation, rows.logicalPlan()));
  }

  /** Newer releases of Spark give it one more argument, whether the table's schema may evolve. */
  private static LogicalPlan appended(DataSourceV2Relation table, LogicalPlan rows) {
    Object options = scala.collection.immutable.Map$.MODULE$.empty();
    Method[] methods = AppendData$.MODULE$.getClass().getMethods();
    try {
      for (int index = 0; index < methods.length; index++) {
        if (methods[index].getName().equals(APPEND)) {
          boolean isShort = methods[index].getParameterTypes().length == 3;
          Object[] arguments = isShort ? new Object[] {table, rows, options} : new Object[] {table, rows, options, Boolean.FALSE};
          return (AppendData) methods[index].invoke(AppendData$.MODULE$, arguments);
        }
      }
    } catch (InvocationTargetException refused) {
      Platform.throwException(refused.getCause());
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
    throw new IllegalStateException("this version of Spark appends rows in a way that tablecrypt does not know");
  }
}
